-- Schema 1. Deadlines are nanoseconds on this kernel's boot clock; what must survive a reboot has a wall clock
-- deadline in microseconds as well.
-- Every statement of the program names its columns, so that a later schema can add some with defaults while
-- programs of this one go on using the file.

CREATE TABLE state (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    id         TEXT    NOT NULL, -- random: tells this database from any other at the same path
    compatible INTEGER NOT NULL, -- the lowest schema whose programs may use the file
    machine    TEXT    NOT NULL,
    boot       TEXT    NOT NULL,
    device     INTEGER NOT NULL,
    inode      INTEGER NOT NULL,
    last       INTEGER NOT NULL, -- the last fencing token given
    high_water INTEGER NOT NULL  -- durable: no token above it was ever given
) STRICT;

-- Who holds and who waits. `version` is the line's, and is right in the row where it is highest.
CREATE TABLE member (
    name       TEXT    NOT NULL,
    place      INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    id         BLOB    NOT NULL,
    life       TEXT,
    host       TEXT    NOT NULL,
    user       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    program    TEXT    NOT NULL,
    tag        TEXT    NOT NULL,
    take       INTEGER NOT NULL,
    limits     INTEGER NOT NULL,
    turn       INTEGER NOT NULL,
    ttl        INTEGER NOT NULL,
    note       TEXT    NOT NULL,
    since      INTEGER NOT NULL,
    until      INTEGER NOT NULL,
    renewed    INTEGER NOT NULL,
    token      INTEGER, -- set for a holder, as are those after it
    first      INTEGER,
    run        INTEGER,
    held_since INTEGER,
    renewals   INTEGER,
    tenure     INTEGER,
    anchored   INTEGER NOT NULL, -- 1: held beyond its end while its life surely lasts
    wants      INTEGER, -- how much it wants instead of `take`, while it holds and waits for more
    reshape    INTEGER NOT NULL, -- which change of its share was stated last
    delay      INTEGER NOT NULL, -- for how long the name stays shut should it end uncleanly
    at_least   INTEGER NOT NULL, -- the same, from the grant
    wall       INTEGER NOT NULL, -- the wall clock at `renewed`: the end of what a reboot ends is reckoned from it
    PRIMARY KEY (name, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE tombstone (
    id    BLOB    NOT NULL,
    name  TEXT    NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE closure (
    name       TEXT    PRIMARY KEY,
    version    INTEGER NOT NULL,
    until      INTEGER NOT NULL,
    until_wall INTEGER NOT NULL,
    lasting    INTEGER NOT NULL,
    host       TEXT    NOT NULL,
    user       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    program    TEXT    NOT NULL,
    tag        TEXT    NOT NULL,
    note       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE mark (
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    made_by    TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    made       INTEGER NOT NULL,
    made_wall  INTEGER NOT NULL,
    until      INTEGER NOT NULL,
    until_wall INTEGER NOT NULL,
    lasting    INTEGER NOT NULL,
    PRIMARY KEY (kind, name, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE record (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    kind      TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    made_by   TEXT    NOT NULL,
    text      TEXT    NOT NULL,
    made      INTEGER NOT NULL,
    made_wall INTEGER NOT NULL
) STRICT;
CREATE INDEX record_by_name ON record (name, id);
