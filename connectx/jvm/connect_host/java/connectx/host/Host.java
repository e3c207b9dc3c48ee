package connectx.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy;
import org.apache.kafka.connect.connector.policy.ConnectorClientConfigOverridePolicy;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.json.JsonConverterConfig;
import org.apache.kafka.connect.runtime.Worker;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;
import org.apache.kafka.connect.runtime.isolation.Plugins;
import org.apache.kafka.connect.storage.KafkaOffsetBackingStore;
import org.apache.kafka.connect.util.SharedTopicAdmin;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.OutputStream;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/**
 * Runs Java connectors for one worker of connectx: Kafka Connect's own {@link Worker}, under orders from outside.
 *
 * Decides nothing. Orders arrive and reports leave as JSON lines on a Unix socket, on which the Python worker listens.
 * Orders have the names of the effects of connectx's core, reports those of its stimuli. When the socket closes, the
 * program ends immediately and commits nothing, as a worker does that was killed.
 */
public final class Host {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Host() {
    }

    public static void main(String[] args) {
        Path address = Path.of(args[0]);
        try (SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            channel.connect(UnixDomainSocketAddress.of(address));
            Link link = new Link(Channels.newWriter(channel, StandardCharsets.UTF_8));
            try {
                run(new BufferedReader(Channels.newReader(channel, StandardCharsets.UTF_8)), link, address);
            } catch (Throwable error) {
                link.report(Link.fields("HostFailed", "trace", Link.trace(error)));
            }
        } catch (IOException error) {
            error.printStackTrace();
        } finally {
            Runtime.getRuntime().halt(0);
        }
    }

    private static void run(BufferedReader in, Link link, Path address) throws IOException {
        String first = in.readLine();
        if (first == null) {
            return;
        }
        JsonNode greeting = JSON.readTree(first);
        Map<String, String> settings = Link.texts(greeting.get("settings"));
        showSettings(settings, address.resolveSibling("worker.properties"));
        Orders orders = start(greeting.get("worker").asText(), settings, link);
        link.report(Link.fields("Ready"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            orders.take(JSON.readTree(line));
        }
    }

    /** Some connectors, Iceberg's sink among them, read the worker's settings from the file on the command line. */
    private static void showSettings(Map<String, String> settings, Path file) throws IOException {
        Properties shown = new Properties();
        shown.putAll(settings);
        try (OutputStream to = Files.newOutputStream(file)) {  // Python has made it, for this user alone
            shown.store(to, null);
        }
        System.setProperty("sun.java.command", "org.apache.kafka.connect.cli.ConnectDistributed " + file);
    }

    private static Orders start(String name, Map<String, String> settings, Link link) {
        Plugins plugins = new Plugins(settings);
        plugins.compareAndSwapWithDelegatingLoader();
        DistributedConfig config = new DistributedConfig(settings);
        // Client ids begin with the worker's name: connectx's fault gate knows by it whose connection it is.
        String clients = settings.get("client.id") + "-";
        Map<String, Object> admin = new HashMap<>(config.originals());
        admin.put("client.id", clients + "shared-admin");
        KafkaOffsetBackingStore offsets = new KafkaOffsetBackingStore(new SharedTopicAdmin(admin), () -> clients,
            plugins.newInternalConverter(true, JsonConverter.class.getName(),
                Map.of(JsonConverterConfig.SCHEMAS_ENABLE_CONFIG, "false")));
        offsets.configure(config);
        // The host overrides client ids for each task. What users may override is checked when a configuration is.
        Worker worker = new Worker(name, Time.SYSTEM, plugins, config, offsets,
            new AllConnectorClientConfigOverridePolicy());
        ConnectorClientConfigOverridePolicy policy = plugins.newPlugin(
            config.getString(WorkerConfig.CONNECTOR_CLIENT_POLICY_CLASS_CONFIG), config,
            ConnectorClientConfigOverridePolicy.class);
        Herder herder = new Herder(worker, name, config, policy, link);
        worker.start();
        Turns turns = new Turns();
        Tasks tasks = new Tasks(worker, plugins, link, turns);
        return new Orders(new Connectors(worker, plugins, link), tasks, new Questions(worker, herder, link), turns, link);
    }
}
