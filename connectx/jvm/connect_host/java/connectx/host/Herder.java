package connectx.host;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.connector.policy.ConnectorClientConfigOverridePolicy;
import org.apache.kafka.connect.runtime.AbstractHerder;
import org.apache.kafka.connect.runtime.ConnectorConfig;
import org.apache.kafka.connect.runtime.HerderRequest;
import org.apache.kafka.connect.runtime.RestartRequest;
import org.apache.kafka.connect.runtime.SourceConnectorConfig;
import org.apache.kafka.connect.runtime.TargetState;
import org.apache.kafka.connect.runtime.TopicStatus;
import org.apache.kafka.connect.runtime.Worker;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;
import org.apache.kafka.connect.runtime.rest.InternalRequestSignature;
import org.apache.kafka.connect.runtime.rest.entities.ConnectorInfo;
import org.apache.kafka.connect.runtime.rest.entities.ConnectorStateInfo;
import org.apache.kafka.connect.runtime.rest.entities.Message;
import org.apache.kafka.connect.runtime.rest.entities.TaskInfo;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.source.ConnectorTransactionBoundaries;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.storage.MemoryStatusBackingStore;
import org.apache.kafka.connect.util.Callback;
import org.apache.kafka.connect.util.ConnectorTaskId;
import org.apache.kafka.connect.util.SinkUtils;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;

/**
 * What Worker requires above it. It validates configurations, with the preflight checks of Kafka's DistributedHerder,
 * and reports the topics of tasks. Everything else that a herder decides, the Python worker decides.
 */
final class Herder extends AbstractHerder {
    private static final String GROUP_OVERRIDE = "consumer.override.group.id";
    private static final String NO_PREFLIGHT = "The connector does not implement the API required for preflight "
        + "validation of exactly-once source support. Please consult the documentation for the connector to determine "
        + "whether it supports exactly-once semantics, and then consider reconfiguring the connector to use the value "
        + "\"requested\" for this property (which will disable this preflight check and allow the connector to be "
        + "created).";
    private static final String NO_BOUNDARIES = "The connector does not support connector-defined transaction "
        + "boundaries with the given configuration. Please reconfigure it to use a different transaction boundary "
        + "definition.";
    private static final String NULL_BOUNDARIES = "This connector has returned a null value from its "
        + "canDefineTransactionBoundaries method, which is not permitted. The connector will be treated as if it cannot "
        + "define its own transaction boundaries, and cannot be configured with 'transaction.boundary' set to "
        + "'connector'.";

    private final DistributedConfig config;

    Herder(Worker worker, String id, DistributedConfig config, ConnectorClientConfigOverridePolicy policy, Link link) {
        super(worker, id, config.kafkaClusterId(), new MemoryStatusBackingStore() {
            @Override
            public void put(TopicStatus status) {
                super.put(status);
                link.report(Link.fields("TopicUsed", "task",
                    new ConnectorTaskId(status.connector(), status.task()).toString(), "topic", status.topic()));
            }
        }, null, policy, Time.SYSTEM);
        this.config = config;
    }

    @Override
    protected Map<String, ConfigValue> validateSinkConnectorConfig(SinkConnector connector, ConfigDef definition,
                                                                   Map<String, String> given) {
        Map<String, ConfigValue> found = super.validateSinkConnectorConfig(connector, definition, given);
        String workers = config.groupId();
        if (given.containsKey(GROUP_OVERRIDE)) {
            String group = given.get(GROUP_OVERRIDE);
            ConfigValue value = found.computeIfAbsent(GROUP_OVERRIDE,
                key -> new ConfigValue(key, group, List.of(), new ArrayList<>()));
            if (workers.equals(group)) {
                value.addErrorMessage("Consumer group " + group + " conflicts with Connect worker group " + workers);
            }
            return found;
        }
        ConfigValue name = found.get(ConnectorConfig.NAME_CONFIG);
        if (workers.equals(SinkUtils.consumerGroupId((String) name.value()))) {
            name.addErrorMessage("Consumer group for sink connector named " + name.value()
                + " conflicts with Connect worker group " + workers);
        }
        return found;
    }

    @Override
    protected Map<String, ConfigValue> validateSourceConnectorConfig(SourceConnector connector, ConfigDef definition,
                                                                     Map<String, String> given) {
        Map<String, ConfigValue> found = super.validateSourceConnectorConfig(connector, definition, given);
        ConfigValue support = found.get(SourceConnectorConfig.EXACTLY_ONCE_SUPPORT_CONFIG);
        if (asks(support, "required")) {
            if (!config.exactlyOnceSourceEnabled()) {
                support.addErrorMessage("This worker does not have exactly-once source support enabled.");
            }
            report(support, () -> {
                ExactlyOnceSupport answer = connector.exactlyOnceSupport(given);
                return answer == ExactlyOnceSupport.SUPPORTED ? null : answer == null ? NO_PREFLIGHT
                    : "The connector does not support exactly-once semantics with the provided configuration.";
            });
        }
        ConfigValue boundary = found.get(SourceConnectorConfig.TRANSACTION_BOUNDARY_CONFIG);
        if (asks(boundary, "connector")) {
            report(boundary, () -> {
                ConnectorTransactionBoundaries answer = connector.canDefineTransactionBoundaries(given);
                return answer == ConnectorTransactionBoundaries.SUPPORTED ? null
                    : answer == null ? NULL_BOUNDARIES : NO_BOUNDARIES;
            });
        }
        return found;
    }

    private static boolean asks(ConfigValue value, String what) {
        return value.errorMessages().isEmpty() && what.equalsIgnoreCase(String.valueOf(value.value()));
    }

    /** Ask the connector, whose own error is a problem, too. */
    private static void report(ConfigValue value, Supplier<String> problem) {
        String found;
        try {
            found = problem.get();
        } catch (Exception error) {
            String message = error.getMessage();
            found = "An unexpected error occurred during validation" + (message == null || message.isBlank()
                ? "; please see the worker logs for more details." : ": " + message.trim());
            error.printStackTrace();
        }
        if (found != null) {
            value.addErrorMessage(found);
        }
    }

    private static UnsupportedOperationException elsewhere() {
        return new UnsupportedOperationException("the Python worker decides this");
    }

    @Override
    protected int generation() {
        return 0;
    }

    @Override
    protected Map<String, String> rawConfig(String connector) {
        throw elsewhere();
    }

    @Override
    protected void modifyConnectorOffsets(String connector, Map<Map<String, ?>, Map<String, ?>> offsets,
                                          Callback<Message> done) {
        throw elsewhere();
    }

    @Override
    public void start() {
    }

    @Override
    public void stop() {
    }

    @Override
    public void healthCheck(Callback<Void> done) {
        throw elsewhere();
    }

    @Override
    public void connectors(Callback<Collection<String>> done) {
        throw elsewhere();
    }

    @Override
    public void connectorInfo(String connector, Callback<ConnectorInfo> done) {
        throw elsewhere();
    }

    @Override
    public void putConnectorConfig(String connector, Map<String, String> given, boolean replace,
                                   Callback<Created<ConnectorInfo>> done) {
        throw elsewhere();
    }

    @Override
    public void putConnectorConfig(String connector, Map<String, String> given, TargetState state, boolean replace,
                                   Callback<Created<ConnectorInfo>> done) {
        throw elsewhere();
    }

    @Override
    public void patchConnectorConfig(String connector, Map<String, String> patch, Callback<Created<ConnectorInfo>> done) {
        throw elsewhere();
    }

    @Override
    public void deleteConnectorConfig(String connector, Callback<Created<ConnectorInfo>> done) {
        throw elsewhere();
    }

    @Override
    public void requestTaskReconfiguration(String connector) {
        throw elsewhere();
    }

    @Override
    public void taskConfigs(String connector, Callback<List<TaskInfo>> done) {
        throw elsewhere();
    }

    @Override
    public void putTaskConfigs(String connector, List<Map<String, String>> configs, Callback<Void> done,
                               InternalRequestSignature signature) {
        throw elsewhere();
    }

    @Override
    public void fenceZombieSourceTasks(String connector, Callback<Void> done, InternalRequestSignature signature) {
        throw elsewhere();
    }

    @Override
    public void restartTask(ConnectorTaskId id, Callback<Void> done) {
        throw elsewhere();
    }

    @Override
    public void restartConnector(String connector, Callback<Void> done) {
        throw elsewhere();
    }

    @Override
    public HerderRequest restartConnector(long delayMs, String connector, Callback<Void> done) {
        throw elsewhere();
    }

    @Override
    public void restartConnectorAndTasks(RestartRequest request, Callback<ConnectorStateInfo> done) {
        throw elsewhere();
    }

    @Override
    public void stopConnector(String connector, Callback<Void> done) {
        throw elsewhere();
    }

    @Override
    public void setClusterLoggerLevel(String namespace, String level) {
        throw elsewhere();
    }
}
