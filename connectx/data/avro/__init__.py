"""Avro to Arrow and back, as Confluent's AvroConverter maps it to Connect's types."""
