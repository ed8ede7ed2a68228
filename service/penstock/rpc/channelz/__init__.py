"""channelz: counters of the server and its connections, from either transport."""
