"""Makes Django's SQLite backend use the SQLite that the pysqlite3 wheel bundles.

Debian 12's own is 3.40.1, which can corrupt a database in WAL mode (fixed in 3.51.3).
"""

import sys

import pysqlite3

sys.modules["sqlite3"] = pysqlite3
sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
