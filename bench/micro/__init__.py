"""One file a question: how fast are blocks copied, found, written and read, what does an engine
gain and pay, what does the agent take. Each answers entries."""
