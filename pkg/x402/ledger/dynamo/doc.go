// Package dynamo is the one DynamoDB table of a deployment: its client, and what is
// kept in it. Ledger, Index and Scan are the payments and purchases of package
// ledger, Limits the counts and leases of package limit, and File a file.
//
// # Items
//
// Every item has a key, "pk". The keys of each kind begin differently, and none
// reads an item of another; whoever reads one as a record finds it corrupt.
//
//	<network>|<asset>|<payer>|<nonce>         a payment; <network> is a CAIP-2 name
//	purchase|<network>|<asset>|<payer>|<id>   a purchase
//	cursor|<network>|<asset>|<payee>          how far the chain was read, as a record
//	rate|<client>|<window>                    the units of a client; window in unix seconds
//	rate|documents|<client>|<window>          the same, of the free documents
//	slots|<operation>, slots|<operation>#1    the leases of an operation, 50 an item
//	rdap|bootstrap                            a File; package boot chooses its key
//	ready                                     never there: /ready asks for it
//
// Their attributes are the constants below. Records and rate items leave by
// TTL, "expires_at"; slots items and files stay.
//
// # The ledger
//
// Every write is a PutItem of the whole item under one of two conditions: the
// key is absent, or the stored version is the one that was read. Every read is
// consistent. A write whose replies were all lost is looked for once. There are no
// transactions, no updates and no deletes. So what may replace what is decided by the
// version alone, and the rules about money are all above, in package ledger.
//
// Not guaranteed: when a reply is lost and another writer replaces the record
// before the request is sent again, the first writer is told that it lost
// although its write was there for a moment.
//
// # The limits
//
// A slots item is written twice by each paid call that takes its slot there.
// DynamoDB allows 1,000 write units a second on it. An item with 50 leases has
// fewer than 1,024 bytes, so that each of these writes takes one unit, a refused
// one too: that is 500 paid calls a second. Beyond it the store fails, and the
// call is answered ledger_unavailable.
package dynamo

// The attributes of every item; a test compares them with the template's.
const (
	// AttrKey is the partition key (S).
	AttrKey = "pk"
	// AttrExpiresAt is the TTL (N, unix seconds). DynamoDB deletes late, so the
	// time in a record decides. Absent when there is none.
	AttrExpiresAt = "expires_at"
)

// The attributes of a record.
const (
	// AttrVersion is the record's version (N), the fencing token that the
	// condition of Replace compares.
	AttrVersion = "version"
	// AttrWriteID names the write that left the item as it is (S).
	AttrWriteID = "write_id"
	// AttrState is the record's state (S), for operators. It is a reserved
	// word: expressions need a placeholder for it.
	AttrState = "state"
	// AttrRecord is the record's JSON form, packed (B).
	AttrRecord = "record"
	// AttrAnswer is the body of the answer (B), absent when there is none.
	AttrAnswer = "answer"
	// AttrOpen is the partition key of the index (S), "open#<shard>" or
	// "owed#<shard>"; absent in a record that is over, which is then not in the
	// index. A reserved word too.
	AttrOpen = "open"
	// AttrLeaseUntil is the sort key of the index (N, unix milliseconds of the
	// record's OpenedAt, rounded up), there when AttrOpen is.
	AttrLeaseUntil = "lease_until"
)

// The attributes of the limits.
const (
	// AttrLeases is the map of leases of an operation (M): end in milliseconds
	// since 1970 (N) by lease id.
	AttrLeases = "leases"
	// AttrRequests is how many units a client has used in a window (N), and
	// AttrUndecided how many of them may be given back still (N).
	AttrRequests  = "requests"
	AttrUndecided = "undecided"
)

// The attributes of a File.
const (
	// AttrFile is the file, compressed with gzip (B): it costs a quarter of the
	// capacity.
	AttrFile = "file"
	// AttrFetched is when it was fetched (N, unix seconds).
	AttrFetched = "fetched"
)
