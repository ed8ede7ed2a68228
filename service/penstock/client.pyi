from penstock_client.client import *
from penstock_client.client import __all__ as __all__
