// Package dynamo keeps the payment ledger and the limits in one DynamoDB table. Open returns a
// Table, which is all a seller needs:
//
//	aws, err := config.LoadDefaultConfig(ctx) // of aws-sdk-go-v2
//	table, err := dynamo.Open(ctx, aws, "ledger")
//	seller, err := x402http.New(x402http.Config{Ledger: table, Limits: table, …})
//
// # The table
//
// The partition key is "pk" (S). The TTL attribute is "expires_at". The global secondary index
// "open" projects only the keys; its partition key is "open" (S), and its sort key is
// "lease_until" (N).
//
// # Items
//
// The keys of each kind of item have their own prefix. The first five kinds are the records of
// the ledger. A program may keep items of other kinds in the table.
//
//	<network>|<asset>|<payer>|<nonce>         a payment; <network> is a CAIP-2 name
//	purchase|<network>|<asset>|<payer>|<id>   a purchase
//	cursor|<network>|<asset>|<payee>          how far the chain was read
//	refund|<network>|<asset>|<payer>|…        a refund transfer and its debt
//	payees|<network>|<asset>                  the accounts to which payments were sent
//	rate|<client>|<window>                    the units that a client has used in a window
//	rate|documents|<client>|<window>          the same, for free documents
//	slots|<operation>                         the leases of an operation
//	ready                                     no such item exists; /ready reads this key
//
// <window> is the time at which a window begins, in unix seconds. TTL deletes records and rate
// items; slots items stay. A slots item has the attribute "slots" (SS): the id and the end of
// each lease. A rate item has "requests" (N), the units that a client has used in a window,
// and "undecided" (N), how many of them may be given back.
//
// # The ledger
//
// Every write of a record is a PutItem of the whole item under one of two conditions: the key
// is absent, or the stored version is the version that was read. Every read is consistent. No
// record is written by a transaction or an update, and none is deleted by this package. If all
// replies to a write were lost, the item is read once. If that read finds the item of another
// writer, the write counts as failed.
//
// # Answers
//
// A table keeps the body of an answer if the compressed body has at most 32 KB. The limit is
// low because every write of the record costs one write unit for each KB. The option Keep sets
// another limit, which can be at most 300 KB: an item of DynamoDB has no room for more. A
// larger answer is given once, and each repeat of the request runs the handler again, five
// times in all.
//
// # The limits
//
// Each paid call writes a slots item twice, and DynamoDB allows 1,000 write units a second on
// one item. A write takes one unit while up to 50 leases are held, and two units with up to
// 100. So an operation can have 500 paid calls a second while it has up to 50 leases, and 250
// while it has more. Further calls get the error ledger_unavailable.
package dynamo

// These are the names of the table's index and of the item attributes that programs outside
// this package use. AttrState and AttrOpen are reserved words of DynamoDB, so expressions need
// placeholders for them.
const (
	AttrKey       = "pk"         // the partition key (S)
	AttrExpiresAt = "expires_at" // the time at which TTL deletes the item (N, unix seconds); absent if the item does not expire
	AttrState     = "state"      // the state of a record (S), which operators read
	IndexName     = "open"       // the index of the listed records, over AttrOpen and AttrLeaseUntil
	// AttrOpen is the partition key of the index (S): the name of a list and a shard, such as
	// "open#<shard>" or "owed#<shard>". AttrLeaseUntil is the sort key of the index (N): the
	// time of Record.Listed in unix milliseconds, rounded up. The item of a record that is in
	// no list has neither of these two attributes.
	AttrOpen       = "open"
	AttrLeaseUntil = "lease_until"
)
