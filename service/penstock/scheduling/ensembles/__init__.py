"""The ensemble scheduler: a graph of models behind the interface of one."""
