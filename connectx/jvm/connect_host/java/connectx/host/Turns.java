package connectx.host;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Carries out work for one connector or task in the order in which it came; different ones do not wait for each other. */
final class Turns {
    private final ExecutorService pool = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work, "connectx-host");
        thread.setDaemon(true);
        return thread;
    });
    private final Map<String, CompletableFuture<Void>> last = new ConcurrentHashMap<>();

    /** Carry out after all that was given under the same key before. The work catches its errors itself. */
    void after(String key, Runnable work) {
        last.compute(key, (k, before) -> before == null || before.isDone()
            ? CompletableFuture.runAsync(work, pool) : before.thenRunAsync(work, pool));
    }

    /** Carry out beside everything else. */
    void beside(Runnable work) {
        pool.execute(work);
    }
}
