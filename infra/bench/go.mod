module github.com/hostfacts/hostfacts/infra/bench

go 1.26.0

require (
	github.com/miekg/dns v1.1.73
	github.com/openrdap/rdap v0.10.2
)

require (
	github.com/alecthomas/kingpin/v2 v2.4.0 // indirect
	github.com/alecthomas/units v0.0.0-20240927000941-0f3dac36c52b // indirect
	github.com/mitchellh/go-homedir v1.1.0 // indirect
	github.com/xhit/go-str2duration/v2 v2.1.0 // indirect
	golang.org/x/crypto v0.56.0 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
