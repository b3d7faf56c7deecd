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

// noQueue: the account has no queue.
func (s *Server) noQueue(*request) ([]byte, *apiError) {
	bad := badRequest("QueueDoesNotExist", "The specified queue does not exist.")
	bad.queryCode = "AWS.SimpleQueueService.NonExistentQueue;Sender"
	return nil, bad
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

// priceItem is one product of the price list.
type priceItem struct {
	attributes map[string]string
	text       string
}

// priceList makes the products of all regions: virtual machines on shared
// tenancy, bare metal under dedicated tenancy, as AWS lists them.
func priceList(catalog facts.Catalog) []priceItem {
	var items []priceItem
	data := catalog.Data()
	for _, region := range sortedKeys(data.OnDemand) {
		for _, t := range catalog.Types() {
			price, ok := catalog.OnDemandPrice(region, t.Name)
			if !ok {
				continue
			}
			tenancy, family := "Shared", "Compute Instance"
			if t.BareMetal {
				tenancy, family = "Dedicated", "Compute Instance (bare metal)"
			}
			sku := strings.ToUpper(hexID("sku|" + region + "|" + t.Name))[:16]
			attributes := map[string]string{
				"instanceType": t.Name, "regionCode": region, "serviceCode": "AmazonEC2", "servicecode": "AmazonEC2",
				"preInstalledSw": "NA", "operatingSystem": "Linux", "capacitystatus": "Used", "marketoption": "OnDemand",
				"tenancy": tenancy, "locationType": "AWS Region",
			}
			dimension := map[string]any{"unit": "Hrs", "rateCode": sku + ".JRTCKXETXF.6YS6EN2CT7",
				"pricePerUnit": map[string]string{"USD": strconv.FormatFloat(price, 'f', 10, 64)}}
			items = append(items, priceItem{attributes: with(attributes, "productFamily", family), text: string(marshal(map[string]any{
				"serviceCode": "AmazonEC2",
				"product":     map[string]any{"sku": sku, "productFamily": family, "attributes": attributes},
				"terms": map[string]any{"OnDemand": map[string]any{sku + ".JRTCKXETXF": map[string]any{
					"priceDimensions": map[string]any{sku + ".JRTCKXETXF.6YS6EN2CT7": dimension}}}},
			}))})
		}
	}
	return items
}

func with(m map[string]string, key, value string) map[string]string {
	c := make(map[string]string, len(m)+1)
	for k, v := range m {
		c[k] = v
	}
	c[key] = value
	return c
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
		wrong := func(f struct{ Type, Field, Value string }) bool { return item.attributes[f.Field] != f.Value }
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
		list = append(list, item.text)
	}
	out["PriceList"] = list
	return marshal(out), nil
}
