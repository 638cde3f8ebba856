// Contends for a name in ZooKeeper with Curator's InterProcessMutex. See `../python/contender.py` for what is said when.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

public final class WithCurator {
    private static final String NAME = "curator";
    private static final String ABOUT = "/META-INF/maven/org.apache.curator/curator-recipes/pom.properties";
    /** Long enough that no session runs out, whatever the machine does meanwhile. */
    private static final int TTL_MS = 20_000;

    public static void main(String[] words) throws Exception {
        String verb = words[0];
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(words[1], TTL_MS, TTL_MS, new RetryNTimes(3, 100));
        client.start();
        client.blockUntilConnected();
        InterProcessMutex lock = new InterProcessMutex(client, words[2]);
        long acquired = 0;
        if (verb.equals("hold")) {
            lock.acquire();
            acquired = 1;
            ready();
            lock.release();
        } else {
            long lasting = (long) (Double.parseDouble(words[3]) * 1e9);
            Path journal = Path.of(words[4]);
            long hold = Long.parseLong(words[5]);
            ready();
            long start = System.nanoTime();
            while (System.nanoTime() - start < lasting) {
                lock.acquire();
                acquired++;
                write(journal, "+");
                Thread.sleep(hold);
                write(journal, "-");
                lock.release();
                TimeUnit.MICROSECONDS.sleep(ThreadLocalRandom.current().nextLong(5_000, 20_000));
            }
        }
        System.out.println("{\"acquired\": " + acquired + "}");
        System.out.flush();
        client.close();
        // A client's threads would keep the program alive a while longer.
        System.exit(0);
    }

    /** In one call: two would be two places in the order. */
    private static void write(Path journal, String sign) throws IOException {
        String line = sign + " " + NAME + " " + ProcessHandle.current().pid() + "\n";
        Files.write(journal, line.getBytes(StandardCharsets.UTF_8), StandardOpenOption.CREATE,
            StandardOpenOption.APPEND);
    }

    /** Says so, and waits for the word. */
    private static void ready() throws IOException {
        Properties about = new Properties();
        try (InputStream file = InterProcessMutex.class.getResourceAsStream(ABOUT)) {
            about.load(file);
        }
        String version = about.getProperty("version");
        System.out.println("{\"client\": \"" + NAME + "\", \"version\": \"" + version + "\"}");
        System.out.flush();
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).readLine();
    }
}
