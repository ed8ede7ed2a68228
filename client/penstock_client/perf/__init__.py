"""A load tool for servers of KServe v2 and of OpenAI's endpoints: the command `penstock perf`."""
