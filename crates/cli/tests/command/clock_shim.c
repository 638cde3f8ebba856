/* Shifts the wall clock of one process, by LD_PRELOAD: as many milliseconds as CLOCK_SHIM_MS says.

   What is under test reads the clock through the code that the kernel maps into each process (the vDSO), past the C
   library; so the entries of that code are overwritten, as a debugger would, by jumps to what is below. The clocks that
   count from boot stay as they are. Should it not work, the process ends before it has begun. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static long long shift_ns;

static int shifted_clock_gettime(clockid_t id, struct timespec *at) {
    if (syscall(SYS_clock_gettime, id, at) != 0)
        return -errno;
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) {
        long long ns = at->tv_sec * SECOND + at->tv_nsec + shift_ns;
        at->tv_sec = ns / SECOND;
        at->tv_nsec = ns % SECOND;
    }
    return 0;
}

static int shifted_gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    shifted_clock_gettime(CLOCK_REALTIME, &now);
    if (at) {
        at->tv_sec = now.tv_sec;
        at->tv_usec = now.tv_nsec / 1000;
    }
    return 0;
}

static time_t shifted_time(time_t *at) {
    struct timespec now;
    shifted_clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}

static void refuse(const char *why) {
    if (write(2, why, strlen(why)) < 0) {
    }
    _exit(99);
}

static void jump_from(void *entry, void *to) {
#if defined(__x86_64__)
    unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}; /* mov rax, to; jmp rax */
    const size_t hole = 2;
#elif defined(__aarch64__)
    unsigned char jump[] = {0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0}; /* ldr x16, +8; br x16 */
    const size_t hole = 8;
#else
    unsigned char jump[] = {0, 0, 0, 0, 0, 0, 0, 0};
    const size_t hole = 0;
    refuse("clock shim: not for this processor\n");
#endif
    memcpy(jump + hole, &to, sizeof to);
    int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (pwrite(memory, jump, sizeof jump, (off_t)(uintptr_t)entry) != (ssize_t)sizeof jump)
        refuse("clock shim: nobody may write over the vDSO here\n");
    close(memory);
    __builtin___clear_cache((char *)entry, (char *)entry + sizeof jump);
}

__attribute__((constructor)) static void shift(void) {
    const char *ms = getenv("CLOCK_SHIM_MS");
    void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    struct { const char *name, *other; void *to; } entries[] = {
        {"__vdso_clock_gettime", "__kernel_clock_gettime", shifted_clock_gettime},
        {"__vdso_gettimeofday", "__kernel_gettimeofday", shifted_gettimeofday},
        {"__vdso_time", "", shifted_time},
    };
    if (!ms)
        return;
    shift_ns = atoll(ms) * 1000000LL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *entry = vdso ? dlsym(vdso, entries[i].name) : NULL;
        if (vdso && !entry)
            entry = dlsym(vdso, entries[i].other);
        if (entry)
            jump_from(entry, entries[i].to);
        else if (i == 0)
            refuse("clock shim: this process has no vDSO\n");
    }
}
