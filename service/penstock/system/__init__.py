"""What a process asks of Linux: allocator, file descriptors, CPU share, child cleanup."""
