"""Transformations and predicates: functions over tables of records, between connector and converters."""
