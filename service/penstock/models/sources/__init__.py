"""Models given by themselves, and not as folders of a repository: files, folders as hubs have them,
and what else is recognised by what lies there. Each becomes a folder of a model.
"""
