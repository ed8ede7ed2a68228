"""The descriptor pool that holds our messages."""

from google.protobuf import any_pb2, duration_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool

# Not protobuf's default pool: other clients and servers of this protocol register the same names
# there, and a process that imported one of them together with us would fail.
POOL = DescriptorPool()

for _imported in (any_pb2, duration_pb2, timestamp_pb2, wrappers_pb2):
    POOL.AddSerializedFile(_imported.DESCRIPTOR.serialized_pb)
