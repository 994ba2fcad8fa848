package file_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"github.com/hostfacts/hostfacts/pkg/x402/ledger/file"
	"github.com/hostfacts/hostfacts/pkg/x402/x402http"
	"github.com/hostfacts/hostfacts/pkg/x402/x402test"
)

// A shop keeps its ledger in a file. After a crash the next process opens the same file, and
// knows which payments are paid and which answers are owed.
func ExampleOpen() {
	folder, err := os.MkdirTemp("", "shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	ledger, err := file.Open(filepath.Join(folder, "ledger.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ledger.Close()

	config := x402http.Config{
		PayTo:  "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
		Ledger: ledger,
		Origin: "https://shop.example",
		Log:    slog.New(slog.DiscardHandler),
	}
	config.Settler, config.Evidence = x402test.PlayMoney(config.PayTo) // play money; for real payments, set config.Facilitator instead
	seller, err := x402http.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	http.Handle("GET /weather", seller.Sell("0.01", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "fair")
	})))
	fmt.Println("ready")
	// Output:
	// ready
}
