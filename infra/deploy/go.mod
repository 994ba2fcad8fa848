module github.com/hostfacts/hostfacts/infra/deploy

go 1.26.0

require (
	github.com/hostfacts/hostfacts v0.0.0
	github.com/pelletier/go-toml/v2 v2.2.4
)

require (
	code.dny.dev/ssrf v0.3.0 // indirect
	github.com/miekg/dns v1.1.73 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/hostfacts/hostfacts => ../..
