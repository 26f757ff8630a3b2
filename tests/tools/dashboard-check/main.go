// dashboard-check FILE: compares a dashboard with Grafana's own types (its Foundation SDK), in its panels and queries,
// too. Fields that Grafana does not know, fields of another type and fields that are missing are errors.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func check(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	cog.NewRuntime().RegisterPanelcfgVariant(timeseries.VariantConfig())
	cog.NewRuntime().RegisterDataqueryVariant(prometheus.VariantConfig())
	var d dashboard.Dashboard
	for _, err := range []error{d.UnmarshalJSONStrict(text), d.Validate()} {
		if err != nil && err.Error() != "" { // the SDK returns an empty list of errors as an error
			return err
		}
	}
	fmt.Printf("%d panels\n", len(d.Panels))
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboard-check FILE")
		os.Exit(2)
	}
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
