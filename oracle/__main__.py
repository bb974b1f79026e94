import sys

from oracle.commands.cli import main

sys.exit(main())
