"""Linux services of a process: allocator, file descriptors, CPU share, child cleanup."""
