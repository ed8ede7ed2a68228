# What models import as `triton_python_backend_utils`, for editors and type checkers, which find
# this package where Penstock is installed. In a model process the module is the one below.

from penstock_backends.python.pb_utils.api import *  # noqa: F403
