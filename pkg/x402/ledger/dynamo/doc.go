// Package dynamo keeps the payment ledger and the limits in one DynamoDB table. Open
// returns a Table, which is all that a seller needs:
//
//	aws, err := config.LoadDefaultConfig(ctx) // of aws-sdk-go-v2
//	table, err := dynamo.Open(ctx, aws, "ledger")
//	seller, err := x402http.New(x402http.Config{Ledger: table, Limits: table, …})
//
// # The table
//
// The partition key is "pk" (S). TTL is on "expires_at". A global secondary index
// "open", of the keys only, has the partition key "open" (S) and the sort key
// "lease_until" (N).
//
// # Items
//
// The keys of each kind begin differently, and an item of another kind is not read as a
// record. A program may keep items of other kinds in the table.
//
//	<network>|<asset>|<payer>|<nonce>         a payment; <network> is a CAIP-2 name
//	purchase|<network>|<asset>|<payer>|<id>   a purchase
//	cursor|<network>|<asset>|<payee>          how far the chain was read, as a record
//	refund|<network>|<asset>|<payer>|…        a transfer that paid one back, as a record
//	rate|<client>|<window>                    the units of a client; window in unix seconds
//	rate|documents|<client>|<window>          the same, of the free documents
//	slots|<operation>                         the leases of an operation
//	ready                                     never there: /ready asks for it
//
// Records and rate items leave by TTL; slots items stay. A slots item has "slots" (SS),
// the id and the end of each lease, and a rate item "requests" (N), the units that a
// client has used in a window, and "undecided" (N), how many of them may be given back.
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
// A slots item is written twice by each paid call. DynamoDB allows 1,000 write units a
// second on it. A write takes one unit while up to 50 leases are held, and two with up
// to 100: that is 500 paid calls a second, or 250. Beyond it the store fails, and the
// call is answered ledger_unavailable.
package dynamo

// The attributes of an item that programs outside this package name; a test compares
// those of the keys, the TTL and the index with the template's.
const (
	// AttrKey is the partition key (S).
	AttrKey = "pk"
	// AttrExpiresAt is the TTL (N, unix seconds). DynamoDB deletes late, so the
	// time in a record decides. Absent when there is none.
	AttrExpiresAt = "expires_at"
	// AttrState is a record's state (S), for operators. It is a reserved
	// word: expressions need a placeholder for it.
	AttrState = "state"
	// IndexName is the table's global secondary index: AttrOpen and AttrLeaseUntil,
	// keys only, and only the records that are not over.
	IndexName = "open"
	// AttrOpen is the partition key of the index (S), "open#<shard>" or
	// "owed#<shard>"; absent in a record that is over. A reserved word too.
	AttrOpen = "open"
	// AttrLeaseUntil is the sort key of the index (N, unix milliseconds of the
	// record's ListedAt, rounded up), there when AttrOpen is.
	AttrLeaseUntil = "lease_until"
)
