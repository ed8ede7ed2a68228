"""The descriptor pool that holds our messages."""

from google.protobuf.descriptor_pool import DescriptorPool

# Not protobuf's default pool: other clients and servers of this protocol register the same names
# there, and a process that imported one of them together with us would fail.
POOL = DescriptorPool()
