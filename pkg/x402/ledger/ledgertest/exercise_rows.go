package ledgertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger"
)

func rowsCases() cases {
	return cases{
		"empty": rowsEmpty, "every record": rowsAll, "no bodies": rowsBodies, "a corrupt row": rowsCorrupt,
		"ended context": rowsEndedContext,
	}
}

func rowsEmpty(t *testing.T, s Whole) {
	if p, err := s.Page(t.Context(), "", 10); err != nil || len(p.Records)+len(p.Corrupt) > 0 || p.Next != "" {
		t.Errorf("Page = %+v, %v", p, err)
	}
}

// rowsAll: every record is in one page, whatever the size of the pages, and as it
// was written last.
func rowsAll(t *testing.T, s Whole) {
	want := map[string]string{}
	for _, i := range rand.Perm(23) {
		r := First(fmt.Sprintf("exercise|%02d", i))
		r.State = ledger.States()[i%len(ledger.States())]
		MustCreate(t, s, r)
		if i%3 == 0 {
			r = Next(r)
			MustReplace(t, s, r)
		}
		want[r.Key] = r.WriteID
	}
	for _, limit := range []int{1, 7, 22, 23, 24, 1 << 20} {
		got := map[string]string{}
		for _, p := range pages(t, s, limit) {
			if len(p.Records) > limit || len(p.Corrupt) > 0 {
				t.Errorf("a page of %d: %d records, corrupt %q", limit, len(p.Records), p.Corrupt)
			}
			for _, r := range p.Records {
				if got[r.Key] != "" {
					t.Errorf("%s is in two pages of %d", r.Key, limit)
				}
				got[r.Key] = r.WriteID
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
		}
	}
	if p, err := s.Page(t.Context(), "", 0); err != nil || len(p.Records) > 0 {
		t.Errorf("a page of nothing = %+v, %v", p, err)
	}
}

// pages reads a store to its end.
func pages(t *testing.T, v ledger.Rows, limit int) (list []ledger.Page) {
	t.Helper()
	for after := ""; len(list) < 1000; {
		p, err := v.Page(t.Context(), after, limit)
		must(t, err)
		list = append(list, p)
		if after = p.Next; after == "" {
			return list
		}
	}
	t.Fatal("the pages have no end")
	return nil
}

// rowsBodies: all of a record is there but the body of its answer.
func rowsBodies(t *testing.T, s Whole) {
	r := Full("exercise|full")
	MustCreate(t, s, r)
	want, err := s.Fetch(t.Context(), r.Key)
	must(t, err)
	list := pages(t, s, 10)
	if len(list) != 1 || len(list[0].Records) != 1 {
		t.Fatalf("pages %+v", list)
	}
	if diff := cmp.Diff(want.Bodiless(), list[0].Records[0]); diff != "" || len(want.Answer.Body) == 0 {
		t.Errorf("the record (-want +got):\n%s", diff)
	}
}

// rowsCorrupt: what cannot be read is named, and hides no other record.
func rowsCorrupt(t *testing.T, s Whole) {
	p, ok := s.(Planter)
	if !ok {
		t.Skip("nothing can be planted in this store")
	}
	for i := range 3 {
		MustCreate(t, s, First(fmt.Sprintf("exercise|%d", i)))
	}
	must(t, p.Plant(t.Context(), "exercise|1", []byte(`{"key":`)))
	for _, limit := range []int{1, 2, 10} {
		var keys, corrupt []string
		for _, p := range pages(t, s, limit) {
			corrupt = append(corrupt, p.Corrupt...)
			for _, r := range p.Records {
				keys = append(keys, r.Key)
			}
		}
		slices.Sort(keys)
		if diff := cmp.Diff([]string{"exercise|0", "exercise|2"}, keys); diff != "" || !slices.Equal(corrupt, []string{"exercise|1"}) {
			t.Errorf("pages of %d: corrupt %q, (-want +got):\n%s", limit, corrupt, diff)
		}
	}
}

func rowsEndedContext(t *testing.T, s Whole) {
	MustCreate(t, s, First("exercise|1"))
	checkEnded(t, "Page", func(ctx context.Context) ([]string, error) {
		p, err := s.Page(ctx, "", 10)
		var keys []string
		for _, r := range p.Records {
			keys = append(keys, r.Key)
		}
		return keys, err
	})
}
