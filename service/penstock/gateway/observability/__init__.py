"""What is told of HTTP requests: the access log, traces, load reports."""
