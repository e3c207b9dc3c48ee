package connectx.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.Writer;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/** Sends reports: one JSON object a line, from any thread. */
final class Link {
    private final ObjectMapper json = new ObjectMapper();
    private final Writer out;

    Link(Writer out) {
        this.out = out;
    }

    void report(Map<String, Object> fields) {
        try {
            String line = json.writeValueAsString(fields) + "\n";
            synchronized (out) {
                out.write(line);
                out.flush();
            }
        } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
            throw new IllegalArgumentException("a report is no JSON: " + fields, error);
        } catch (IOException error) {
            Runtime.getRuntime().halt(0);  // its worker has ended
        }
    }

    /** The fields of a report, in their order: its name, then names and values in turn. */
    static Map<String, Object> fields(String report, Object... fields) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("report", report);
        for (int i = 0; i < fields.length; i += 2) {
            found.put((String) fields[i], fields[i + 1]);
        }
        return found;
    }

    /** A configuration out of an order; its values may be null. */
    static Map<String, String> texts(JsonNode node) {
        Map<String, String> texts = new HashMap<>();
        for (Map.Entry<String, JsonNode> entry : node.properties()) {
            texts.put(entry.getKey(), entry.getValue().isNull() ? null : entry.getValue().asText());
        }
        return texts;
    }

    static String trace(Throwable error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        return text.toString();
    }
}
