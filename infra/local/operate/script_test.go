package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostfacts/hostfacts/infra/testbed"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
)

var update = flag.Bool("update", false, "write into the scripts what the commands print")

// TestScripts runs the scripts of testdata. They contain an operator's commands. After each
// command come its standard output, its notes (standard error), and its exit status if that is
// not 0. After the commands refund and answered, the state of the payment's record comes last.
// A section begins with its name and these settings:
//
//	% ledger NAME...  a ledger with the records of these fillings (see fillings); without this line there is no ledger
//	% node WORD...    the node that RPC_URL names; for the words see startNode
//	% set NAME=VALUE  a variable of the environment
//	% damage          the ledger's file is damaged
//	% stop            the commands are interrupted before they begin
//	% ready STATUS BODY  the answer of /ready at the deployment $ORIGIN
//	% shop            a shop with a ledger and a chain; the shop's day is $DAY, which has ended
//	% STEP...         an event in this shop, see step
//
// Texts that differ from run to run are replaced by placeholders: see the field placeholders
// of scripted.
func TestScripts(t *testing.T) {
	t.Parallel()
	testbed.Scripts(t, *update, newScripted)
}

// scripted is one section of a script.
type scripted struct {
	t            *testing.T
	ctx          context.Context
	env          map[string]string
	placeholders []string // pairs: a text that differs from run to run, and its placeholder
	shop         *shop
}

func newScripted(t *testing.T) testbed.Script {
	s := &scripted{t: t, ctx: t.Context(), env: map[string]string{"LEDGER_FILE": filepath.Join(t.TempDir(), "none.db")}}
	for n := range 10 {
		s.placeholders = append(s.placeholders, keyOf(n), fmt.Sprintf("$KEY%d", n), txOf(n), fmt.Sprintf("$TX%d", n))
	}
	s.placeholders = append(s.placeholders, strings.TrimSuffix(keyOf(0), "000"), "$KEY-", refundTx, "$BACK", paidIn, "$PAID", payer, "$PAYER", strings.ToLower(payer), "$payer", "$PAYER", payer,
		localUser(), "$OPERATOR", s.env["LEDGER_FILE"], "$LEDGER")
	return s
}

func (s *scripted) Prepare(line string) {
	args := strings.Fields(s.replacePlaceholders(line))
	switch what, args := args[0], args[1:]; what {
	case "ledger":
		var list []filling
		for _, name := range args {
			list = append(list, fillings(s.t)[name])
		}
		path, paid := newLedgerFile(s.t, list...)
		s.env["LEDGER_FILE"] = path
		s.placeholders = append(s.placeholders, path, "$LEDGER")
		s.nameTimes(paid)
	case "node":
		node := startNode(s.t, args...)
		s.env["RPC_URL"] = node + "/s3cr3t"
		s.placeholders = append(s.placeholders, strings.TrimPrefix(node, "http://"), "$NODE")
	case "ready":
		deployment := testbed.Serve(s.t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status, body, _ := strings.Cut(strings.TrimPrefix(line, "ready "), " ")
			if r.URL.Path == pathReady {
				code, _ := strconv.Atoi(status)
				w.WriteHeader(code)
				_, _ = io.WriteString(w, body)
			}
		}))
		s.placeholders = append(s.placeholders, deployment, "$ORIGIN")
	case "stop":
		stopped, stop := context.WithCancel(s.ctx)
		stop()
		s.ctx = stopped
	case "damage":
		if err := os.Truncate(s.env["LEDGER_FILE"], 9000); err != nil {
			s.t.Fatal(err)
		}
	case "set":
		name, value, _ := strings.Cut(args[0], "=")
		s.env[name] = value
	case "shop":
		s.shop = newShop(s.t)
		maps.Copy(s.env, s.shop.env())
		s.placeholders = append(s.placeholders, s.shop.path, "$LEDGER", strings.TrimPrefix(s.env["RPC_URL"], "http://"), "$NODE")
		for offset, word := range map[int]string{-1: "$BEFORE", 0: "$DAY", 1: "$AFTER"} {
			s.placeholders = append(s.placeholders, s.shop.day.AddDate(0, 0, offset).Format(time.DateOnly), word)
		}
	default:
		if s.shop == nil || !s.shop.step(line) {
			s.t.Fatalf("%% %s is not known", line)
		}
	}
}

// nameTimes adds placeholders for the times that a script prints: the current time, and times
// after the payments.
func (s *scripted) nameTimes(paid time.Time) {
	for _, form := range []string{"2006-01-02 15:04Z", time.RFC3339} {
		for _, d := range []time.Duration{0, time.Minute, 2 * time.Minute, time.Hour, 24 * time.Hour, 24*time.Hour + time.Minute} {
			s.placeholders = append(s.placeholders, paid.Add(d).Format(form), strings.TrimSuffix("$T+"+d.String(), "+0s"))
		}
		for _, d := range []time.Duration{-time.Minute, 0, time.Minute} {
			s.placeholders = append(s.placeholders, time.Now().UTC().Add(d).Format(form), "$NOW")
		}
	}
}

// replacePlaceholders replaces the placeholders in a line by their texts.
func (s *scripted) replacePlaceholders(line string) string {
	for i := len(s.placeholders) - 2; i >= 0; i -= 2 {
		if strings.HasPrefix(s.placeholders[i+1], "$") {
			line = strings.ReplaceAll(line, s.placeholders[i+1], s.placeholders[i])
		}
	}
	return strings.NewReplacer("$TODAY", time.Now().UTC().Format(time.DateOnly), `\e`, "\x1b").Replace(line)
}

func (s *scripted) Command(line string) string {
	args := strings.Fields(s.replacePlaceholders(line))
	var out, notes bytes.Buffer
	code := run(s.ctx, args, order{getenv: func(name string) string { return s.env[name] }, now: time.Now, out: &out, notes: &notes})
	said := out.String()
	if notes.Len() > 0 {
		said += "notes:\n" + notes.String()
	}
	if code != 0 {
		said += fmt.Sprintf("exit status %d\n", code)
	}
	if len(args) > 0 && (args[0] == "refund" || args[0] == "answered") {
		said += s.state(args)
	}
	if strings.Contains(said, "s3cr3t") || strings.ContainsRune(said, '\x1b') {
		s.t.Errorf("%q shows the node's key, or steers the terminal: %q", args, said)
	}
	said = strings.NewReplacer(s.placeholders...).Replace(said)
	said = regexp.MustCompile(`(blocks?) [0-9]+( to [0-9]+)?`).ReplaceAllString(said, "$1 N")
	return regexp.MustCompile(`(?m)[0-9]{4}-[0-9-]+[T ][0-9:]+(\.[0-9]+)?(Z|[+-][0-9:]{5}| \+0000 UTC)|[0-9.]+m?s$`).ReplaceAllString(said, "TIME")
}

// state returns the state of the record whose key is among the arguments, or "" if there is no
// such record.
func (s *scripted) state(args []string) string {
	store, err := file.Open(s.env["LEDGER_FILE"])
	if err != nil {
		return ""
	}
	defer store.Close()
	for _, key := range args {
		found, err := store.Fetch(s.t.Context(), strings.ToLower(key))
		if r, ok := found.(ledger.Payment); ok && err == nil {
			return strings.TrimSpace(fmt.Sprintf("record: %s %s", r.State, r.Refund)) + "\n"
		}
	}
	return ""
}

// fillings returns the fillings that a script can use, by their names.
func fillings(t *testing.T) map[string]filling {
	t.Helper()
	all := map[string]filling{
		"nothing": func(*buyer) {}, "fill": fillFour, "complete": fillEveryState,
		"reserved-for-3": func(b *buyer) { b.reserveTransfer(3, 0) }, "reserved-for-4": func(b *buyer) { b.reserveTransfer(4, 0) },
	}
	maps.Copy(all, contradictions(t))
	return all
}
