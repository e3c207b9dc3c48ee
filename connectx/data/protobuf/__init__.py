"""Protobuf to Arrow and back, as Confluent's ProtobufConverter maps it to Connect's types."""
