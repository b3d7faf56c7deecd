package ec2sim

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/provisioner/aws/facts"
)

// assumeRoleWithWebIdentity believes every token that is not empty.
func (s *Server) assumeRoleWithWebIdentity(r *request) ([]byte, *apiError) {
	f := r.form
	role, session := f.str("RoleArn"), f.str("RoleSessionName")
	_, name, ok := strings.Cut(role, ":role/")
	switch {
	case !ok:
		return nil, badRequest("ValidationError", "%s is invalid", clip(role))
	case session == "":
		return nil, badRequest("ValidationError", "The parameter RoleSessionName is missing")
	case f.str("WebIdentityToken") == "":
		return nil, badRequest("InvalidIdentityToken", "The token is empty")
	}
	w := xmlWriter{}
	w.in("Credentials", func() {
		w.text("AccessKeyId", "ASIA"+strings.ToUpper(s.newID("key"))[:16])
		w.text("SecretAccessKey", s.newID("secret")+s.newID("secret"))
		w.text("SessionToken", "session-"+s.newID("session"))
		w.time("Expiration", s.opts.Clock.Now().Add(time.Hour))
	})
	w.in("AssumedRoleUser", func() {
		w.text("Arn", s.arn("iam", "assumed-role/"+name+"/"+session))
		w.text("AssumedRoleId", "AROA"+strings.ToUpper(hexID("role|"+name))+":"+session)
	})
	return w.buf, nil
}

func (s *Server) getCallerIdentity(*request) ([]byte, *apiError) {
	w := xmlWriter{}
	w.text("Arn", s.arn("iam", "root"))
	w.text("UserId", s.opts.AccountID)
	w.text("Account", s.opts.AccountID)
	return w.buf, nil
}

func (s *Server) describeCluster(r *request) ([]byte, *apiError) {
	name, err := url.PathUnescape(strings.TrimPrefix(r.path, "/clusters/"))
	if err != nil || name != s.opts.ClusterName {
		return nil, refuse(http.StatusNotFound, "ResourceNotFoundException", "No cluster found for name: %s.", clip(name))
	}
	network := map[string]string{"ipFamily": "ipv4"}
	if s.opts.ServiceIPv4CIDR != "" {
		network["serviceIpv4Cidr"] = s.opts.ServiceIPv4CIDR
	}
	if s.opts.ServiceIPv6CIDR != "" {
		network["serviceIpv6Cidr"], network["ipFamily"] = s.opts.ServiceIPv6CIDR, "ipv6"
	}
	return marshal(map[string]any{"cluster": map[string]any{
		"name": s.opts.ClusterName, "arn": s.arn("eks", "cluster/"+s.opts.ClusterName), "status": "ACTIVE",
		"version": s.opts.EKSVersion, "endpoint": s.opts.ClusterEndpoint,
		"certificateAuthority":    map[string]string{"data": s.opts.ClusterCA},
		"createdAt":               float64(s.started.UnixMilli()) / 1000,
		"kubernetesNetworkConfig": network,
	}}), nil
}

// SetEKSVersion changes the version that EKS DescribeCluster answers.
func (s *Server) SetEKSVersion(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts.EKSVersion = version
}

func (s *Server) imdsToken(r *request) ([]byte, *apiError) { return []byte("token-" + r.id), nil }

func (s *Server) imdsIdentity(*request) ([]byte, *apiError) {
	return marshal(map[string]string{"region": s.opts.Region, "accountId": s.opts.AccountID, "version": "2017-09-30"}), nil
}

// product is one line of the price list.
type product struct {
	region, instanceType string
	metal                bool
	price                float64
}

// priceList makes the products of all regions.
func priceList(catalog facts.Catalog) []product {
	var list []product
	for _, region := range sortedKeys(catalog.Data().OnDemand) {
		for _, t := range catalog.Types() {
			if price, ok := catalog.OnDemandPrice(region, t.Name); ok {
				list = append(list, product{region, t.Name, t.BareMetal, price})
			}
		}
	}
	return list
}

// attribute returns what a filter compares with. Virtual machines are listed on
// shared tenancy, bare metal on dedicated tenancy, as AWS lists them.
func (p product) attribute(field string) string {
	switch field {
	case "instanceType":
		return p.instanceType
	case "regionCode":
		return p.region
	case "serviceCode", "servicecode":
		return "AmazonEC2"
	case "preInstalledSw":
		return "NA"
	case "operatingSystem":
		return "Linux"
	case "capacitystatus":
		return "Used"
	case "marketoption":
		return "OnDemand"
	case "locationType":
		return "AWS Region"
	case "tenancy":
		if p.metal {
			return "Dedicated"
		}
		return "Shared"
	case "productFamily":
		if p.metal {
			return "Compute Instance (bare metal)"
		}
		return "Compute Instance"
	}
	return ""
}

// text is the JSON text that stands in PriceList.
func (p product) text() string {
	sku := strings.ToUpper(hexID("sku|" + p.region + "|" + p.instanceType))[:16]
	attributes := map[string]string{}
	for _, field := range []string{"instanceType", "regionCode", "servicecode", "preInstalledSw", "operatingSystem",
		"capacitystatus", "marketoption", "locationType", "tenancy"} {
		attributes[field] = p.attribute(field)
	}
	currency := "USD"
	if strings.HasPrefix(p.region, "cn-") {
		currency = "CNY"
	}
	offer, rate := sku+".JRTCKXETXF", sku+".JRTCKXETXF.6YS6EN2CT7"
	dimension := map[string]any{"unit": "Hrs", "rateCode": rate,
		"pricePerUnit": map[string]string{currency: strconv.FormatFloat(p.price, 'f', 10, 64)}}
	return string(marshal(map[string]any{
		"serviceCode": "AmazonEC2",
		"product":     map[string]any{"sku": sku, "productFamily": p.attribute("productFamily"), "attributes": attributes},
		"terms": map[string]any{"OnDemand": map[string]any{offer: map[string]any{
			"priceDimensions": map[string]any{rate: dimension}}}},
	}))
}

// SetOnDemandPrice changes the on-demand price of a type in the server's region,
// in the price list and for later launches.
func (s *Server) SetOnDemandPrice(instanceType string, usd float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.prices {
		if p := &s.prices[i]; p.region == s.opts.Region && p.instanceType == instanceType {
			p.price = usd
		}
	}
	if e := s.types.byName[instanceType]; e != nil {
		e.price = usd
	}
}

// SetSpotPrice changes the spot price of a type in a zone, in the history and
// for later launches; 0 means that there is no spot there.
func (s *Server) SetSpotPrice(instanceType, zone string, usd float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.types.byName[instanceType]; e != nil {
		e.spot[zone] = usd
	}
}

func (s *Server) getProducts(r *request) ([]byte, *apiError) {
	var in struct {
		ServiceCode, NextToken string
		MaxResults             int
		Filters                []struct{ Type, Field, Value string }
	}
	if err := json.Unmarshal(r.json, &in); err != nil {
		return nil, badRequest("InvalidParameterException", "The body does not have the form of GetProducts")
	}
	if in.ServiceCode != "AmazonEC2" {
		return nil, badRequest("InvalidParameterException", "The service code %s is not known", clip(in.ServiceCode))
	}
	if in.MaxResults < 0 || in.MaxResults > 100 {
		return nil, badRequest("InvalidParameterException", "MaxResults must be between 1 and 100")
	}
	for _, f := range in.Filters {
		if f.Type != "TERM_MATCH" {
			return nil, badRequest("InvalidParameterException", "The filter type %s is not simulated", clip(f.Type))
		}
	}
	size, from := cmp.Or(in.MaxResults, 100), 0
	if in.NextToken != "" {
		var bad *apiError
		if from, bad = parseToken(in.NextToken, "products"); bad != nil {
			return nil, badRequest("InvalidNextTokenException", "%s", bad.message)
		}
	}
	out := map[string]any{"FormatVersion": "aws_v1"}
	list := []string{}
	matched := 0
	for _, item := range s.prices {
		wrong := func(f struct{ Type, Field, Value string }) bool { return item.attribute(f.Field) != f.Value }
		if slices.ContainsFunc(in.Filters, wrong) {
			continue
		}
		if matched++; matched <= from {
			continue
		}
		if len(list) == size {
			out["NextToken"] = makeToken(from+size, "products")
			break
		}
		list = append(list, item.text())
	}
	out["PriceList"] = list
	return marshal(out), nil
}
