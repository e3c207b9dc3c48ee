import java.io.*; import java.math.*; import java.nio.charset.StandardCharsets; import java.util.*;
import org.apache.kafka.connect.data.*; import org.apache.kafka.connect.json.JsonConverter;

/**
 * Prints what Kafka Connect's JsonConverter writes: `kind TAB input TAB JSON`, one line each.
 *
 * `golden.tsv` is its output on Java 21 with the jars of the set `kafka-connect` (connectx/jvm/jars.lock.json):
 * javac -cp "$JARS" JsonGolden.java && java -cp "$JARS:." JsonGolden > golden.tsv
 */
public class JsonGolden {
    static final JsonConverter PLAIN = new JsonConverter(), NUMERIC = new JsonConverter(), ENVELOPE = new JsonConverter();
    static String json(JsonConverter c, Schema s, Object v) { return new String(c.fromConnectData("t", s, v), StandardCharsets.UTF_8); }
    static void line(String kind, String input, String json) { System.out.println(kind + "\t" + input + "\t" + json); }
    static void d(long bits) { line("float64", Long.toHexString(bits), json(PLAIN, Schema.FLOAT64_SCHEMA, Double.longBitsToDouble(bits))); }
    static void f(int bits) { line("float32", Integer.toHexString(bits), json(PLAIN, Schema.FLOAT32_SCHEMA, Float.intBitsToFloat(bits))); }
    public static void main(String[] args) {
        System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8));
        PLAIN.configure(Map.of("schemas.enable", "false"), false);
        NUMERIC.configure(Map.of("schemas.enable", "false", "decimal.format", "NUMERIC"), false);
        ENVELOPE.configure(Map.of("schemas.enable", "true"), false);
        Random r = new Random(7);
        double[] doubles = {0.0, -0.0, 1, -1, 0.1, 1.5, 100, 1e6, 9999999, 9999999.5, 1e7, 1.0000001e7, 123456789, 0.001, 0.00099999, 1e-3, 1.1e-3, 1e-4, 1e10, 1e15, 1e16, 1e17, 1e20, 1e21, 1e22, 1e23, 2e23, 1e100, 1.7976931348623157e308,
            2.2250738585072014e-308, 4.9e-324, 1e-323, 1.5e-323, 2e-323, 1e-322, 9007199254740993.0, 9007199254740992.0, 4503599627370497.5, 5.684341886080802E-14, 2.0E-3, 3.3, 0.3, Math.PI, Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, 12345.678, 1234567.8, 12345678.9, -0.00123, 8.41E21, 2.2E-322, 8.9E-307};
        for (double x : doubles) d(Double.doubleToRawLongBits(x));
        for (long i = 1; i <= 100; i++) d(i);
        for (int i = 0; i < 400; i++) d(r.nextLong());
        for (int i = 0; i < 200; i++) d(Double.doubleToRawLongBits(r.nextInt(2_000_000) / 100.0 - 10_000));
        for (int i = 0; i < 100; i++) d(Double.doubleToRawLongBits(Math.pow(10, r.nextInt(40) - 20) * r.nextInt(1000)));
        for (int i = -30; i < 60; i += 3) d(Double.doubleToRawLongBits(Math.pow(2, i)));
        float[] floats = {0f, -0f, 1f, 0.1f, 1.5f, 1e7f, 9999999f, 0.001f, 0.00099f, 1e10f, 3.4028235e38f, 1.4e-45f, 1.1754944e-38f, 16777216f, 16777218f, 3.3f, Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY, 8.5899346E9f, 2e10f, 123456.78f};
        for (float x : floats) f(Float.floatToRawIntBits(x));
        for (int i = 1; i <= 100; i++) f(i);
        for (int i = 0; i < 400; i++) f(r.nextInt());
        for (int i = 0; i < 100; i++) f(Float.floatToRawIntBits(r.nextInt(2_000_000) / 100f - 10_000f));
        String[] decimals = {"0", "0.00", "1.50", "-1.50", "0E-10", "0.0000001", "0.000001", "-0.00000012", "1E-20", "12345678901234567890.1234", "-99999999999999999999999999999999999999", "127", "128", "-128", "-129", "255", "256", "32767", "32768", "-32768", "-32769", "0.1", "-0.1"};
        for (String text : decimals) { BigDecimal x = new BigDecimal(text); line("decimal", x.unscaledValue() + "/" + x.scale(), json(PLAIN, Decimal.schema(x.scale()), x)); line("decimal numeric", x.unscaledValue() + "/" + x.scale(), json(NUMERIC, Decimal.schema(x.scale()), x)); }
        for (int i = 0; i < 40; i++) { byte[] b = new byte[i % 23]; r.nextBytes(b); line("bytes", new BigInteger(1, b).toString(16) + "/" + b.length, json(PLAIN, Schema.BYTES_SCHEMA, b)); }
        StringBuilder s = new StringBuilder(); for (char c = 0; c < 33; c++) s.append(c); s.append("\"\\/\u007f\u0080\u00e9\u20ac\u2028\u2029\ud83d\ude00");
        String hex = ""; for (byte b : s.toString().getBytes(StandardCharsets.UTF_8)) hex += String.format("%02x", b);
        line("string", hex, json(PLAIN, Schema.STRING_SCHEMA, s.toString()));
        Schema inner = SchemaBuilder.struct().optional().field("x", Schema.OPTIONAL_FLOAT64_SCHEMA).field("l", SchemaBuilder.array(Schema.OPTIONAL_INT32_SCHEMA).optional().build()).build();
        Schema row = SchemaBuilder.struct().field("i8", Schema.INT8_SCHEMA).field("i64", Schema.OPTIONAL_INT64_SCHEMA).field("f32", Schema.OPTIONAL_FLOAT32_SCHEMA).field("b", Schema.OPTIONAL_BOOLEAN_SCHEMA)
            .field("raw", Schema.OPTIONAL_BYTES_SCHEMA).field("day", org.apache.kafka.connect.data.Date.builder().optional().build()).field("at", Timestamp.builder().optional().build())
            .field("price", Decimal.builder(2).parameter("connect.decimal.precision", "10").optional().build()).field("a\"b", inner)
            .field("\u00e9\u0001\ud83d\ude00", Schema.OPTIONAL_STRING_SCHEMA).field("m", SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.OPTIONAL_FLOAT64_SCHEMA).optional().build())
            .field("ll", SchemaBuilder.array(SchemaBuilder.array(Schema.OPTIONAL_STRING_SCHEMA).optional().build()).optional().build()).build();
        Struct one = new Struct(row).put("i8", (byte) -7).put("i64", Long.MIN_VALUE).put("f32", 0.1f).put("b", true).put("raw", new byte[] {(byte) 255, 0}).put("day", new java.util.Date(86_400_000L * -2)).put("at", new java.util.Date(-1L))
            .put("price", new BigDecimal("-12345.67")).put("a\"b", new Struct(inner).put("x", 1e7).put("l", Arrays.asList(1, null, -3))).put("\u00e9\u0001\ud83d\ude00", "\u2028\ud83d\ude00").put("m", Map.of("k \"1\"", 0.5)).put("ll", Arrays.asList(Arrays.asList("a", null), null, List.of()));
        Struct nulls = new Struct(row).put("i8", (byte) 0);
        line("row", "one", json(PLAIN, row, one)); line("row", "nulls", json(PLAIN, row, nulls));
        line("row", "one numeric", json(NUMERIC, row, one));
        line("row", "one in an envelope", json(ENVELOPE, row, one)); line("row", "nulls in an envelope", json(ENVELOPE, row, nulls));
    }
}
