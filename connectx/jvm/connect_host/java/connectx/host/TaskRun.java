package connectx.host;

import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.connect.runtime.TargetState;
import org.apache.kafka.connect.runtime.TaskStatus;
import org.apache.kafka.connect.util.ConnectorTaskId;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/** One task instance, from PrepareTask to its end. Its taps find it by its token. */
final class TaskRun implements TaskStatus.Listener {
    private static final Map<String, TaskRun> BY_TOKEN = new ConcurrentHashMap<>();
    private static final AtomicLong TOKENS = new AtomicLong();
    private static final String STOPPED_EARLY = "the task was stopped before it had begun";

    final ConnectorTaskId id;
    final int instance;
    private final Link link;
    private final Consumer<TaskRun> onEnd;
    private final String token = "run-" + TOKENS.incrementAndGet();
    private final CountDownLatch initialization = new CountDownLatch(1);
    private final CountDownLatch begin = new CountDownLatch(1);
    private Consumer<TargetState> starter;
    private boolean paused;
    private boolean stopping;
    private boolean over;
    private volatile boolean running;
    private final SinkCounts counts = new SinkCounts();

    TaskRun(ConnectorTaskId id, int instance, Link link, Consumer<TaskRun> onEnd) {
        this.id = id;
        this.instance = instance;
        this.link = link;
        this.onEnd = onEnd;
    }

    static TaskRun of(String token) {
        return BY_TOKEN.get(token);
    }

    String token() {
        BY_TOKEN.put(token, this);
        return token;
    }

    void forget() {
        BY_TOKEN.remove(token);
    }

    SinkCounts counts() {
        return counts;
    }

    // Steps of its start.

    void prepared(String version) {
        report("TaskPrepared", "version", version);
    }

    void producerReady() {
        report("TaskProducerReady");
    }

    void mayInitialize() {
        initialization.countDown();
    }

    /** What starts a task without exactly-once, whose clients may not exist before it begins. */
    void onBegin(Consumer<TargetState> start) {
        starter = start;
    }

    void begin() {
        if (starter == null) {
            begin.countDown();
            return;
        }
        TargetState target;
        synchronized (this) {
            if (stopping) {
                return;
            }
            target = paused ? TargetState.PAUSED : TargetState.STARTED;
        }
        starter.accept(target);
    }

    void awaitInitialization() {
        await(initialization);
    }

    /** As in Kafka Connect, a task that is paused before it begins does not start its plugin. */
    void awaitBegin() {
        await(begin);
        synchronized (this) {
            if (paused) {
                report("TaskStateReached", "paused", true);
            }
            try {
                while (paused && !stopping) {
                    wait();
                }
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
            endIfStopping();
        }
    }

    private void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        synchronized (this) {
            endIfStopping();
        }
    }

    private void endIfStopping() {
        if (stopping) {
            throw new IllegalStateException(STOPPED_EARLY);
        }
    }

    // Its target state and its end.

    synchronized void setPaused(boolean value) {
        paused = value;
        notifyAll();
    }

    boolean isRunning() {
        return running;
    }

    synchronized void stop() {
        stopping = true;
        initialization.countDown();
        begin.countDown();
        notifyAll();
    }

    void stopped() {
        if (ends()) {
            report("TaskStopped");
        }
    }

    /** True once, for the report of its end. */
    private synchronized boolean ends() {
        boolean first = !over;
        over = true;
        return first;
    }

    private synchronized boolean isStopping() {
        return stopping;
    }

    /** Records and offsets were committed, in a transaction of its producer if it is an exactly-once source. */
    void committed(long records, String key, Object offsets) {
        report("Committed", "records", records, "transaction", starter == null, key, offsets);
    }

    void report(String name, Object... fields) {
        link.report(fields(name, fields));
    }

    private Map<String, Object> fields(String name, Object... fields) {
        Map<String, Object> report = Link.fields(name, fields);
        report.put("task", id.toString());
        report.put("instance", instance);
        return report;
    }

    @Override
    public void onStartup(ConnectorTaskId task) {
        running = true;
        report("TaskStateReached", "paused", false);
    }

    @Override
    public void onPause(ConnectorTaskId task) {
        running = true;
        report("TaskStateReached", "paused", true);
    }

    @Override
    public void onResume(ConnectorTaskId task) {
        onStartup(task);
    }

    @Override
    public void onFailure(ConnectorTaskId task, Throwable error) {
        boolean early = isStopping() && !running;
        if (early && error instanceof IllegalStateException && STOPPED_EARLY.equals(error.getMessage())) {
            return;  // the order to stop is answered
        }
        if (ends()) {
            report("TaskFailed", "trace", Link.trace(error), "fenced", isFenced(error));
        }
        onEnd.accept(this);
    }

    @Override
    public void onShutdown(ConnectorTaskId task) {
        if (!isStopping() && ends()) {
            report("TaskFailed", "trace", "The thread of the task was interrupted and has ended.", "fenced", false);
            onEnd.accept(this);
        }
    }

    @Override
    public void onDeletion(ConnectorTaskId task) {
    }

    @Override
    public void onRestart(ConnectorTaskId task) {
    }

    private static boolean isFenced(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof ProducerFencedException || cause instanceof InvalidProducerEpochException) {
                return true;
            }
        }
        return false;
    }
}
