package lookup

// Verdict is a rule for the line that says in words what an answer found, above its
// table on the page for people. The first rule of an operation that holds is shown. The
// page's script applies the rules to the JSON of the answer.
type Verdict struct {
	// If are comparisons joined by " and "; empty always holds. Each is a path into
	// the answer, an operator (=, !=, <, >=) and a word, such as "records.length = 0"
	// or "ssl.expired = true". A value is compared as JSON prints it, a text without
	// its quotes, and what is not there as null; < and >= compare numbers.
	If string `json:"if,omitempty"`
	// Says is the line. In it {path} is a value, {path date} a time as "31 December
	// 2020", {path distance} the same as "in 12 days" or "3 days ago", {path list} the
	// items of an array with commas, and {path count mail server} how many they are:
	// "1 mail server", "2 mail servers".
	Says string `json:"says"`
	// Tone is how good that is.
	Tone Tone `json:"tone,omitempty"`
}

// Tone is how good the news of a verdict is; the page colours its line by it.
type Tone string

// The tones. The zero value is a fact without a judgement.
const (
	Good Tone = "good"
	Warn Tone = "warn"
	Bad  Tone = "bad"
)
