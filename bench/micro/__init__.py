"""One file a question: how fast are blocks copied, found, and read from disk. Each answers rows."""
