"""The ensemble scheduler: a dataflow graph of models behind the interface of one model."""
