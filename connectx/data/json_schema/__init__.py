"""JSON Schema to Arrow and back, as Confluent's JsonSchemaConverter maps it to Connect's types."""
