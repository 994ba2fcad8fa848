// Package dynamo keeps the payment ledger and the limits in one DynamoDB table. Open returns a
// Table, which is all a seller needs:
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
// The keys of each kind begin differently. A program may keep items of other kinds in the
// table.
//
//	<network>|<asset>|<payer>|<nonce>         a payment; <network> is a CAIP-2 name
//	purchase|<network>|<asset>|<payer>|<id>   a purchase
//	cursor|<network>|<asset>|<payee>          how far the chain was read, as a record
//	refund|<network>|<asset>|<payer>|…        a transfer that paid one back, as a record
//	payees|<network>|<asset>                  who was paid, as a record
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
// Every write is a PutItem of the whole item under one of two conditions: the key is absent, or
// the stored version is the one that was read. Every read is consistent. There are no
// transactions, no updates and no deletes. If all replies to a write were lost, the item is read
// once; if another writer has replaced it meanwhile, the write is reported as lost.
//
// # Answers
//
// A table keeps the body of an answer up to 32 KB, compressed, because DynamoDB charges a write
// unit for each KB and for each write of its record. The option Keep raises the limit to at most
// 300 KB, for which a DynamoDB item has room. A larger answer is given once, and each repeat
// runs the handler again, five times in all.
//
// # The limits
//
// A slots item is written twice by each paid call, and DynamoDB allows 1,000 write units a
// second on it. A write takes one unit while up to 50 leases are held, and two with up to
// 100: that is 500 paid calls a second, or 250. Beyond that a call is answered
// ledger_unavailable.
package dynamo

// The attributes of an item that programs outside this package name, and the table's global
// secondary index. AttrState and AttrOpen are reserved words: expressions need placeholders
// for them.
const (
	AttrKey       = "pk"         // the partition key (S)
	AttrExpiresAt = "expires_at" // the TTL (N, unix seconds); absent when there is none
	AttrState     = "state"      // a record's state (S), for operators
	IndexName     = "open"       // of AttrOpen and AttrLeaseUntil: the records that are not over
	// AttrOpen is the partition key of the index (S), "open#<shard>" or "owed#<shard>",
	// and AttrLeaseUntil its sort key (N, unix milliseconds of Record.Listed,
	// rounded up). They are absent in a record that is over.
	AttrOpen       = "open"
	AttrLeaseUntil = "lease_until"
)
