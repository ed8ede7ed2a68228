"""ORCA: load reports for load balancers, with answers and out of band."""
