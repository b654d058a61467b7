"""One line or more for every command of Redis and Valkey, on keys that `fill` makes; a test sees that none lacks."""

from __future__ import annotations

from typing import Any

AnyClient = Any
"""A client of either library."""

_LINES = """
APPEND text x
BITCOUNT text
BITFIELD text GET u8 0
BITFIELD_RO text GET u8 0
BITOP AND new text number
BITPOS text 1
BLMOVE list list2 LEFT RIGHT 0.01
BLMPOP 0.01 2 list list2 LEFT COUNT 2
BLPOP list list2 0.01
BRPOP list list2 0.01
BRPOPLPUSH list list2 0.01
BZMPOP 0.01 2 zset zset2 MIN
BZPOPMAX zset zset2 0.01
BZPOPMIN zset zset2 0.01
CLIENT GETNAME
CLIENT HELP
CLIENT ID
CLIENT INFO
CLIENT SETINFO LIB-VER 1
CLIENT SETNAME me
COMMAND COUNT
COMMAND DOCS get
COMMAND GETKEYS get k
COMMAND GETKEYSANDFLAGS get k
COMMAND HELP
COMMAND INFO get
COMMAND LIST
COPY text new
COPY text number REPLACE
DECR number
DECRBY number 2
DEL text list
DELIFEQ text hello
DISCARD
DUMP text
ECHO text
EXISTS text list new
EXPIRE text 100
EXPIREAT text 33177117420
EXPIRETIME text
GEOADD geo 13.4 52.5 Berlin
GEODIST geo Palermo Catania
GEOHASH geo Palermo
GEOPOS geo Palermo
GEORADIUS geo 15 37 200 km
GEORADIUS geo 15 37 200 km WITHDIST COUNT 1 ANY ASC
GEORADIUS geo 15 37 200 km STORE new
GEORADIUS geo 15 37 200 km COUNT 2 STOREDIST new
GEORADIUSBYMEMBER geo Palermo 200 km
GEORADIUSBYMEMBER geo Palermo 200 km STORE new
GEORADIUSBYMEMBER_RO geo Palermo 200 km
GEORADIUS_RO geo 15 37 200 km
GEOSEARCH geo FROMLONLAT 15 37 BYRADIUS 200 km ASC
GEOSEARCHSTORE new geo FROMLONLAT 15 37 BYRADIUS 200 km
GET text
GETBIT text 1
GETDEL text
GETEX text EX 100
GETRANGE text 0 -1
GETSET text new
HDEL hash field
HEXISTS hash field
HEXPIRE hash 100 FIELDS 1 field
HEXPIREAT hash 33177117420 FIELDS 1 field
HEXPIRETIME hash FIELDS 1 field
HGET hash field
HGETALL hash
HGETDEL hash FIELDS 1 field
HGETEX hash EX 100 FIELDS 1 field
HINCRBY hash count 1
HINCRBYFLOAT hash count 1.5
HKEYS hash
HLEN hash
HMGET hash field count
HMSET hash field 1
HPERSIST hash FIELDS 1 field
HPEXPIRE hash 100000 FIELDS 1 field
HPEXPIREAT hash 33177117420000 FIELDS 1 field
HPEXPIRETIME hash FIELDS 1 field
HPTTL hash FIELDS 1 field
HRANDFIELD hash 1
HSCAN hash 0
HSET hash field 2
HSETEX hash EX 100 FIELDS 1 field 3
HSETNX hash other 1
HSTRLEN hash field
HTTL hash FIELDS 1 field
HVALS hash
INCR number
INCRBY number 2
INCRBYFLOAT number 1.5
INFO keyspace
KEYS *
KEYS t[a-z]xt
LASTSAVE
LCS text number
LINDEX list 0
LINSERT list BEFORE b x
LLEN list
LMOVE list list2 LEFT RIGHT
LMPOP 2 list list2 LEFT
LOLWUT
LPOP list
LPOS list b
LPUSH list x
LPUSHX list x
LRANGE list 0 -1
LREM list 1 b
LSET list 0 x
LTRIM list 0 1
MEMORY HELP
MEMORY USAGE text
MGET text number new
MSET text 1 new 2
MSETEX 2 text 1 new 2 EX 100
MSETNX new 1 newer 2
OBJECT ENCODING text
OBJECT FREQ text
OBJECT HELP
OBJECT IDLETIME text
OBJECT REFCOUNT text
PERSIST text
PEXPIRE text 100000
PEXPIREAT text 33177117420000
PEXPIRETIME text
PFADD hll x
PFCOUNT hll hll2
PFMERGE new hll hll2
PING
PSETEX text 100000 x
PTTL text
PUBLISH channel hello
PUBSUB CHANNELS
PUBSUB CHANNELS c*
PUBSUB HELP
PUBSUB NUMSUB channel
PUBSUB SHARDCHANNELS
PUBSUB SHARDCHANNELS c*
PUBSUB SHARDNUMSUB channel
QUIT
RENAME text new
RENAMENX text new
ROLE
RPOP list
RPOPLPUSH list list2
RPUSH list x
RPUSHX list x
SADD set x
SCAN 0
SCAN 0 COUNT 100 TYPE string
SCAN 0 MATCH t*t COUNT 100
SCARD set
SCRIPT HELP
SDIFF set set2
SDIFFSTORE new set set2
SET text x EX 100
SETBIT text 1 1
SETEX text 100 x
SETNX new x
SETRANGE text 0 x
SINTER set set2
SINTERCARD 2 set set2 LIMIT 1
SINTERSTORE new set set2
SISMEMBER set 1
SMEMBERS set
SMISMEMBER set 1 2
SMOVE set set2 1
SORT set BY weight_* GET # GET weight_* GET hash->field LIMIT 0 10 DESC
SORT set BY nosort GET weight_* STORE new
SORT list ALPHA
SORT_RO set BY weight_* GET weight_*
SPOP set
SPUBLISH channel hello
SRANDMEMBER set 2
SREM set 1
SSCAN set 0
STRLEN text
SUBSTR text 0 1
SUNION set set2
SUNIONSTORE new set set2
TIME
TOUCH text list
TTL text
TYPE text
UNLINK text list
UNWATCH
WAIT 0 1
WAITAOF 0 0 1
WATCH text list
XACK stream group 1-1
XADD stream MAXLEN ~ 10 * f v
XAUTOCLAIM stream group me 0 0
XCLAIM stream group me 0 1-1
XDEL stream 1-1
XGROUP CREATE stream group2 $
XGROUP CREATECONSUMER stream group me
XGROUP DELCONSUMER stream group me
XGROUP DESTROY stream group
XGROUP HELP
XGROUP SETID stream group 0
XINFO CONSUMERS stream group
XINFO GROUPS stream
XINFO HELP
XINFO STREAM stream FULL
XLEN stream
XPENDING stream group
XRANGE stream - +
XREAD COUNT 2 BLOCK 1 STREAMS stream stream2 0 0
XREAD STREAMS stream $
XREADGROUP GROUP group me COUNT 1 NOACK STREAMS stream >
XREADGROUP GROUP group me STREAMS stream 0
XREVRANGE stream + -
XSETID stream 9-9
XTRIM stream MAXLEN 1
ZADD zset 1 x
ZCARD zset
ZCOUNT zset 0 10
ZDIFF 2 zset zset2 WITHSCORES
ZDIFFSTORE new 2 zset zset2
ZINCRBY zset 1 a
ZINTER 2 zset zset2 WEIGHTS 1 2
ZINTERCARD 2 zset zset2
ZINTERSTORE new 2 zset zset2 AGGREGATE MAX
ZLEXCOUNT zset - +
ZMPOP 2 zset zset2 MAX COUNT 2
ZMSCORE zset a b
ZPOPMAX zset
ZPOPMIN zset
ZRANDMEMBER zset 2
ZRANGE zset 0 -1
ZRANGEBYLEX zset - +
ZRANGEBYSCORE zset 0 10
ZRANGESTORE new zset 0 -1
ZRANK zset a
ZREM zset a
ZREMRANGEBYLEX zset - +
ZREMRANGEBYRANK zset 0 0
ZREMRANGEBYSCORE zset 0 1
ZREVRANGE zset 0 -1
ZREVRANGEBYLEX zset + -
ZREVRANGEBYSCORE zset 10 0
ZREVRANK zset a
ZSCAN zset 0
ZSCORE zset a
ZUNION 2 zset zset2
ZUNIONSTORE new 2 zset zset2 WEIGHTS 1 2
"""

LINES = [tuple(line.split()) for line in _LINES.strip().splitlines()]
DUMPED = ("RESTORE", "new", "0")
"""Needs what DUMP answers as its last word."""

SUBSCRIPTIONS = [
    tuple(line.split())
    for line in (
        "SUBSCRIBE channel", "SSUBSCRIBE channel", "PSUBSCRIBE c*", "UNSUBSCRIBE channel", "SUNSUBSCRIBE channel",
        "PUNSUBSCRIBE c*",
    )
]  # fmt: skip

SCRIPTS = [
    tuple(line.split())
    for line in (
        "EVAL return 1 text", "EVAL return 0", "EVALSHA abc 1 text", "EVAL_RO return 1 text", "EVALSHA_RO abc 1 text",
        "FCALL f 1 text", "FCALL_RO f 1 text", "SCRIPT LOAD return", "SCRIPT EXISTS abc",
    )
]  # fmt: skip

REFUSED = [
    tuple(line.split())
    for line in (
        "FLUSHALL", "FLUSHDB ASYNC", "SWAPDB 0 1", "SELECT 1", "MOVE text 1", "COPY text new DB 1", "RANDOMKEY",
        "DBSIZE", "MONITOR", "MIGRATE 127.0.0.1 1 text 0 10", "CONFIG SET maxmemory 0", "CONFIG GET *",
        "DEBUG OBJECT text", "ACL LIST", "CLIENT LIST", "CLIENT KILL ID 1", "CLIENT TRACKING ON BCAST",
        "CLIENT REPLY OFF", "CLUSTER SLOTS", "SLOWLOG GET", "PUBSUB NUMPAT", "MULTI", "EXEC", "RESET", "HELLO 3",
        "AUTH x", "SHUTDOWN", "SCRIPT FLUSH", "FUNCTION LIST", "LATENCY LATEST", "MEMORY STATS", "MODULE LIST",
        "REPLICAOF NO ONE", "PSYNC ? -1", "SYNC", "CLUSTERSCAN 0", "COMMANDLOG GET 1 slow", "RESTORE-ASKING text 0 x",
        "PFDEBUG ENCODING hll", "FT.SEARCH i x", "JSON.GET text", "NOSUCH text", "SORT set BY",
        "SORT set NEWOPTION text", "XREAD STREAMS stream", "XREAD COUNT 1 OF stream 0", "ZUNION 3 zset zset2",
        "ZUNION x zset", "ZUNION -1 zset", "ZUNION 02 zset zset2", "LMPOP 0 list LEFT", "SCAN 0 MATCH",
        "SCAN 0 WITHOUT text", "GEORADIUS geo 15 37 200 km INTO new", "RENAME text", "BLPOP list", "OBJECT",
        "XGROUP NEW stream", "CLUSTER", "SAVE", "BGSAVE", "FAILOVER",
    )
]  # fmt: skip
"""What is refused without a look at the server."""


def fill(client: AnyClient, mark: str) -> None:
    """Make the keys that the lines use; their values contain `mark`."""
    pipe = client.pipeline(transaction=False)
    pipe.delete("list", "list2", "hash", "set", "set2", "zset", "zset2", "geo", "hll", "hll2", "stream", "stream2")
    pipe.set("text", f"hello {mark}").set("number", 10)
    pipe.rpush("list", "a", "b", mark).rpush("list2", "c", mark)
    pipe.hset("hash", mapping={"field": mark, "count": 1})
    pipe.sadd("set", 1, 2).sadd("set2", 2, 3)
    pipe.set("weight_1", f"2{mark}").set("weight_2", f"1{mark}")
    pipe.zadd("zset", {"a": 1, "b": 2, mark: 3}).zadd("zset2", {"b": 1, mark: 2})
    pipe.geoadd("geo", [13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania", 15, 37, mark])
    pipe.pfadd("hll", "x", mark).pfadd("hll2", "y", mark)
    pipe.xadd("stream", {"f": mark}, id="1-1").xadd("stream", {"f": mark}, id="2-1")
    pipe.xadd("stream2", {"f": mark}, id="1-1")
    pipe.xgroup_destroy("stream", "group").xgroup_create("stream", "group", "0")
    pipe.execute()
