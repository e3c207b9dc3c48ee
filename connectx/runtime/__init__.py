"""The live driver: workers, mailboxes, timers, task threads, faults."""
