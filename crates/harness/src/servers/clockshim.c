/* A clock for a server under test: preloaded, it answers what the test wrote into a shared file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The first number, if not 0, is the time in nanoseconds since 1970; the second is added to the machine's. */
static volatile int64_t *told;

__attribute__((constructor)) static void open_clock(void) {
  const char *path = getenv("LEASEHOLD_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *map = file < 0 ? MAP_FAILED : mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (map != MAP_FAILED) told = map;
}

int clock_gettime(clockid_t id, struct timespec *time) {
  int failed = syscall(SYS_clock_gettime, id, time);
  if (failed || !told || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return failed;
  int64_t now = told[0] ? told[0] : time->tv_sec * 1000000000LL + time->tv_nsec + told[1];
  time->tv_sec = now / 1000000000;
  time->tv_nsec = now % 1000000000;
  return 0;
}

int gettimeofday(struct timeval *time, void *zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *into) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (into) *into = now.tv_sec;
  return now.tv_sec;
}

/* A Valkey that finds the processor's own counter asks for the time once in a millisecond, and adds what it counted
 * since. One that cannot read about the processor asks each time. */
static FILE *open_but(const char *function, const char *path, const char *mode) {
  FILE *(*open)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, function);
  if (open && strcmp(path, "/proc/cpuinfo") != 0) return open(path, mode);
  errno = ENOENT;
  return NULL;
}

FILE *fopen(const char *path, const char *mode) { return open_but("fopen", path, mode); }

FILE *fopen64(const char *path, const char *mode) { return open_but("fopen64", path, mode); }
