"""The command of `make images`."""

import sys

from deploy.image.images import main

if __name__ == "__main__":
    sys.exit(main())
