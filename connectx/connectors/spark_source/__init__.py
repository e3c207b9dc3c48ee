"""SparkSource: tables and formats of Spark that get new rows."""
