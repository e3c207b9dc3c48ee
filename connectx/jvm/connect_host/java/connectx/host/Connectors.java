package connectx.host;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.connect.runtime.CloseableConnectorContext;
import org.apache.kafka.connect.runtime.ConnectorConfig;
import org.apache.kafka.connect.runtime.ConnectorStatus;
import org.apache.kafka.connect.runtime.SinkConnectorConfig;
import org.apache.kafka.connect.runtime.SourceConnectorConfig;
import org.apache.kafka.connect.runtime.TargetState;
import org.apache.kafka.connect.runtime.Worker;
import org.apache.kafka.connect.runtime.isolation.Plugins;
import org.apache.kafka.connect.util.Callback;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** Connector instances. */
final class Connectors {
    private static final long LONGEST_MOVE_S = 60;

    private final Worker worker;
    private final Plugins plugins;
    private final Link link;
    private final Map<String, Integer> instances = new ConcurrentHashMap<>();
    /** What waits for the start or the move of a connector. */
    private final Map<String, CountDownLatch> moving = new ConcurrentHashMap<>();

    Connectors(Worker worker, Plugins plugins, Link link) {
        this.worker = worker;
        this.plugins = plugins;
        this.link = link;
    }

    static Map<String, Object> report(String name, JsonNode order, Object... fields) {
        Map<String, Object> report = Link.fields(name, fields);
        report.put("connector", order.get("connector").asText());
        report.put("instance", order.get("instance").asInt());
        return report;
    }

    void start(JsonNode order) {
        String name = name(order);
        instances.put(name, order.get("instance").asInt());
        andWait(name, moved -> worker.startConnector(name, Link.texts(order.get("config")), new Context(order),
            new Listener(order), target(order), (error, state) -> {
                if (error != null) {
                    fail(order, error);
                } else {
                    link.report(report("ConnectorStarted", order, "state", state.name(),
                        "version", worker.connectorVersion(name)));
                }
                moved.countDown();
            }));
    }

    void setTargetState(JsonNode order) {
        move(name(order), target(order), (error, state) -> {
            if (error != null) {
                fail(order, error);
            } else {
                link.report(report("ConnectorStateReached", order, "state", state.name()));
            }
        });
    }

    /**
     * Move a connector, if it is here, and its tasks, which Worker moves together. Waits for the end, because Worker
     * drops a move of the connector that has not ended when the next one comes.
     */
    void move(String name, TargetState target, Callback<TargetState> done) {
        if (!worker.connectorNames().contains(name)) {
            worker.setTargetState(name, target, done);
            return;
        }
        andWait(name, moved -> worker.setTargetState(name, target, (error, state) -> {
            done.onCompletion(error, state);
            moved.countDown();
        }));
    }

    /** End the wait for a connector that does not return: it is to stop. */
    void release(JsonNode order) {
        CountDownLatch moved = moving.get(name(order));
        if (moved != null) {
            moved.countDown();
        }
    }

    private void andWait(String name, Consumer<CountDownLatch> move) {
        CountDownLatch moved = new CountDownLatch(1);
        moving.put(name, moved);
        move.accept(moved);
        try {
            moved.await(LONGEST_MOVE_S, TimeUnit.SECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        moving.remove(name, moved);
    }

    void generate(JsonNode order) {
        String name = name(order);
        Map<String, String> config = Link.texts(order.get("config"));
        try {
            ConnectorConfig parsed = worker.isSinkConnector(name) ? new SinkConnectorConfig(plugins, config)
                : new SourceConnectorConfig(plugins, config, worker.isTopicCreationEnabled());
            link.report(report("TaskConfigsGenerated", order, "task_configs", worker.connectorTaskConfigs(name, parsed)));
        } catch (Throwable error) {
            link.report(report("TaskConfigsGenerated", order, "error", Link.trace(error)));
        }
    }

    void stop(JsonNode order) {
        if (instances.remove(name(order), order.get("instance").asInt())) {
            worker.stopAndAwaitConnector(name(order));
        }
        link.report(report("ConnectorStopped", order));
    }

    private void fail(JsonNode order, Throwable error) {
        link.report(report("ConnectorFailed", order, "trace", Link.trace(error)));
    }

    private static String name(JsonNode order) {
        return order.get("connector").asText();
    }

    private static TargetState target(JsonNode order) {
        return TargetState.valueOf(order.get("target_state").asText());
    }

    /** What a connector may ask of its worker. */
    private final class Context implements CloseableConnectorContext {
        private final JsonNode order;
        private volatile boolean closed;

        Context(JsonNode order) {
            this.order = order;
        }

        @Override
        public void requestTaskReconfiguration() {
            if (!closed) {
                link.report(report("TaskReconfigurationRequested", order));
            }
        }

        @Override
        public void raiseError(Exception error) {
            if (!closed) {
                fail(order, error);
            }
        }

        @Override
        public PluginMetrics pluginMetrics() {
            return worker.metrics().connectorPluginMetrics(name(order));
        }

        @Override
        public void close() {
            closed = true;
        }
    }

    /** Changes of state are reported by the callbacks of their orders; a failure comes here first, with its cause. */
    private final class Listener implements ConnectorStatus.Listener {
        private final JsonNode order;

        Listener(JsonNode order) {
            this.order = order;
        }

        @Override
        public void onFailure(String connector, Throwable cause) {
            fail(order, cause);
        }

        @Override
        public void onStartup(String connector) {
        }

        @Override
        public void onPause(String connector) {
        }

        @Override
        public void onResume(String connector) {
        }

        @Override
        public void onStop(String connector) {
        }

        @Override
        public void onShutdown(String connector) {
        }

        @Override
        public void onDeletion(String connector) {
        }

        @Override
        public void onRestart(String connector) {
        }
    }
}
