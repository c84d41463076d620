//! CRSs in every notation, beside what PROJ makes of them.

use super::*;
use crate::geo::{Crs, Transformer};
use crate::{GeoBox, GeoTransform, Size};

/// PROJ string, longitude and latitude, x and y. Computed with GDAL 3.6.2 (PROJ 9.1.1):
/// `gdaltransform -s_srs EPSG:4326 -t_srs "<text>" -output_xy`, which takes longitude first.
#[rustfmt::skip]
const ORACLE: &[(&str, [f64; 2], [f64; 2])] = &[
    ("+proj=sinu +lon_0=0 +R=6371007.181 +units=m +no_defs", [133.2, -25.1], [13412543.3206405, -2790995.80461397]),
    ("+proj=sinu +lon_0=0 +R=6371007.181 +units=m +no_defs", [-60.0, 10.0], [-6570344.95699216, 1111950.51976652]),
    ("+proj=lcc +lat_1=30 +lat_2=60 +lat_0=38.5 +lon_0=-97.5 +R=6370000 +units=m", [-100.0, 40.0], [-206555.142633706, 165252.657339807]),
    ("+proj=lcc +lat_1=33 +lat_2=45 +lat_0=23 +lon_0=-96 +x_0=609601.2192 +datum=NAD83 +units=us-ft", [-78.0, 37.0], [7197162.1102319, 5653747.16173408]),
    ("+proj=lcc +lat_1=18 +lat_0=18 +lon_0=-77 +k_0=0.9999 +x_0=250000 +y_0=150000 +ellps=WGS84", [-77.3, 18.2], [218267.509411462, 172159.809424041]),
    ("+proj=geos +lon_0=140.7 +h=35785863 +a=6378137 +b=6356752.3", [150.0, -25.0], [917335.412006496, -2624248.42777171]),
    ("+proj=geos +lon_0=140.7 +h=35785863 +a=6378137 +b=6356752.3", [140.7, 0.0], [0.0, 0.0]),
    ("+proj=geos +lon_0=-75 +h=35786023 +ellps=GRS80 +sweep=x", [-70.0, 30.0], [468595.773155083, 3087367.47623635]),
    ("+proj=stere +lat_0=-90 +lat_ts=-71 +lon_0=0 +datum=WGS84", [166.7, -77.85], [304792.096543695, -1289361.30321776]),
    ("+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +a=6378273 +b=6356889.449", [-50.0, 72.0], [-171303.054752591, -1958002.8754449]),
    ("+proj=stere +lat_0=40 +lon_0=5 +k=0.9 +ellps=WGS84", [7.0, 45.0], [142230.643131783, 501936.16603139]),
    ("+proj=laea +lat_0=45 +lon_0=-100 +R=6370997", [-90.0, 40.0], [850045.515520194, -504360.08926403]),
    ("+proj=laea +lat_0=-30 +lon_0=20 +ellps=WGS84 +x_0=100 +y_0=200", [25.0, -33.0], [467280.763850429, -342766.463906219]),
    ("+proj=aea +lat_1=-18 +lat_2=-36 +lat_0=0 +lon_0=132 +ellps=GRS80", [147.0, -42.0], [1272213.83477751, -4666485.80078246]),
    ("+proj=aeqd +lat_0=49 +lon_0=2 +datum=WGS84", [10.0, 52.0], [548609.753728703, 363108.040965145]),
    ("+proj=eqdc +lat_1=20 +lat_2=60 +lat_0=40 +lon_0=-96 +datum=NAD83", [-90.0, 35.0], [517825.849380711, -537845.762004565]),
    ("+proj=sterea +lat_0=52 +lon_0=5 +k=0.9999079 +x_0=155000 +y_0=463000 +ellps=WGS84", [5.5, 51.0], [190098.085840666, 351869.460022241]),
    ("+proj=eqc +lat_ts=30 +lat_0=0 +lon_0=10 +datum=WGS84", [20.0, 35.0], [964055.069633228, 3896182.17776457]),
    ("+proj=cass +lat_0=10 +lon_0=-61 +x_0=86501 +y_0=65379 +ellps=WGS84", [-61.2, 10.4], [64600.4774521884, 109629.543462591]),
    ("+proj=poly +lat_0=0 +lon_0=-54 +x_0=5000000 +y_0=10000000 +ellps=GRS80", [-47.9, -15.8], [5653463.73422716, 8243016.22202974]),
    ("+proj=robin +lon_0=20 +datum=WGS84", [40.0, 50.0], [1639929.22048289, 5326895.72598291]),
    ("+proj=moll +lon_0=0 +datum=WGS84", [40.0, 50.0], [3042532.74484204, 5873471.95621065]),
    ("+proj=cea +lat_ts=30 +lon_0=0 +datum=WGS84", [40.0, 50.0], [3859451.21003586, 5614050.1030608]),
    ("+proj=eqearth +lon_0=0 +datum=WGS84", [40.0, 50.0], [3164157.4922036, 5985837.89911016]),
    ("+proj=merc +lon_0=110 +k=0.997 +x_0=3900000 +y_0=900000 +ellps=WGS84", [115.0, -5.0], [4454927.66160447, 348076.904724683]),
    ("+proj=merc +lon_0=51 +lat_ts=42 +ellps=WGS84", [52.0, 43.0], [82850.7615853865, 3931798.54071577]),
    ("+proj=tmerc +lat_0=49 +lon_0=-2 +k=0.9996 +x_0=400000 +y_0=-100000 +ellps=GRS80 +units=ft", [-1.0, 51.0], [1542548.75823821, 403034.794766855]),
    ("+proj=tmerc +axis=wsu +lat_0=0 +lon_0=29 +k=1 +ellps=WGS84", [28.5, -26.0], [50059.2513200753, 2876930.32529362]),
    ("+proj=utm +zone=33 +ellps=GRS80", [15.5, 60.0], [527888.663943901, 6651516.5754968]),
    ("+proj=tmerc +lat_0=0 +lon_0=15.8082777777778 +k=1 +x_0=1500000 +y_0=0 +ellps=bessel +towgs84=414.1,41.3,603.1,-0.855,2.141,-7.023,0", [18.0, 59.0], [1626135.02515932, 6544107.15869116]),
];

fn plane(crs: Crs) -> GeoBox {
    GeoBox {
        size: Size {
            width: 1,
            height: 1,
        },
        crs: Some(crs),
        transform: Some(GeoTransform([0.0, 1.0, 0.0, 0.0, 0.0, 1.0])),
    }
}

fn project(crs: &Crs, point: [f64; 2]) -> Option<[f64; 2]> {
    let to = Transformer::new(&plane(Crs::Epsg(4326)), &plane(crs.clone()));
    to.unwrap().place(point)
}

#[test]
fn every_projection_lies_where_proj_puts_it() {
    for (text, point, expected) in ORACLE {
        let crs = Crs::parse(text).unwrap();
        let [x, y] = project(&crs, *point).unwrap_or_else(|| panic!("{text}"));
        let apart = (x - expected[0]).hypot(y - expected[1]);
        // A datum shift drops the height between its two steps.
        let most = if text.contains("towgs84") { 0.05 } else { 1e-3 };
        assert!(apart < most, "{text}: {x} {y}, {apart} off");
    }
}

#[test]
fn a_crs_survives_being_written_as_wkt() {
    for (text, ..) in ORACLE {
        let parts = Parts::parse(text).unwrap();
        let again = Parts::parse(&parts.to_wkt()).unwrap();
        assert!(parts.is_same(&again), "{text}: {}", parts.to_wkt());
        assert_eq!(parts.is_geographic(), again.is_geographic());
    }
}

const FEET: &str = r#"PROJCRS["unknown",BASEGEOGCRS["unknown",DATUM["North American Datum 1983",ELLIPSOID["GRS 1980",6378137,298.257222101,LENGTHUNIT["metre",1]],ID["EPSG",6269]],PRIMEM["Greenwich",0,ANGLEUNIT["degree",0.0174532925199433],ID["EPSG",8901]]],CONVERSION["unknown",METHOD["Lambert Conic Conformal (2SP)",ID["EPSG",9802]],PARAMETER["Latitude of false origin",23,ANGLEUNIT["degree",0.0174532925199433],ID["EPSG",8821]],PARAMETER["Longitude of false origin",-96,ANGLEUNIT["degree",0.0174532925199433],ID["EPSG",8822]],PARAMETER["Latitude of 1st standard parallel",33,ANGLEUNIT["degree",0.0174532925199433],ID["EPSG",8823]],PARAMETER["Latitude of 2nd standard parallel",45,ANGLEUNIT["degree",0.0174532925199433],ID["EPSG",8824]],PARAMETER["Easting at false origin",1999999.999992,LENGTHUNIT["US survey foot",0.304800609601219],ID["EPSG",8826]],PARAMETER["Northing at false origin",0,LENGTHUNIT["US survey foot",0.304800609601219],ID["EPSG",8827]]],CS[Cartesian,2],AXIS["(E)",east,ORDER[1],LENGTHUNIT["US survey foot",0.304800609601219,ID["EPSG",9003]]],AXIS["(N)",north,ORDER[2],LENGTHUNIT["US survey foot",0.304800609601219,ID["EPSG",9003]]]]"#;
const SINUSOIDAL: &str = r#"{"type":"ProjectedCRS","name":"MODIS","base_crs":{"name":"unknown","datum":{"type":"GeodeticReferenceFrame","name":"unknown","ellipsoid":{"name":"sphere","radius":6371007.181}},"coordinate_system":{"subtype":"ellipsoidal","axis":[{"name":"Longitude","abbreviation":"lon","direction":"east","unit":"degree"},{"name":"Latitude","abbreviation":"lat","direction":"north","unit":"degree"}]}},"conversion":{"name":"unknown","method":{"name":"Sinusoidal"},"parameters":[{"name":"Longitude of natural origin","value":0,"unit":"degree"},{"name":"False easting","value":0,"unit":"metre"}]},"coordinate_system":{"subtype":"Cartesian","axis":[{"name":"Easting","abbreviation":"E","direction":"east","unit":"metre"},{"name":"Northing","abbreviation":"N","direction":"north","unit":"metre"}]}}"#;
const ESRI: &str = r#"PROJCS["Canada_Albers_Equal_Area_Conic",GEOGCS["GCS_North_American_1983",DATUM["D_North_American_1983",SPHEROID["GRS_1980",6378137.0,298.257222101]],PRIMEM["Greenwich",0.0],UNIT["Degree",0.0174532925199433]],PROJECTION["Albers"],PARAMETER["False_Easting",0.0],PARAMETER["False_Northing",0.0],PARAMETER["Central_Meridian",-96.0],PARAMETER["Standard_Parallel_1",50.0],PARAMETER["Standard_Parallel_2",70.0],PARAMETER["Latitude_Of_Origin",40.0],UNIT["Meter",1.0]]"#;

#[test]
fn other_notations_are_the_same_crs() {
    let of = |text: &str| Parts::parse(text).unwrap();
    for (text, words) in [
        (
            FEET,
            "+proj=lcc +lat_1=33 +lat_2=45 +lat_0=23 +lon_0=-96 +x_0=609601.2192 +datum=NAD83 +units=us-ft",
        ),
        (
            SINUSOIDAL,
            "+proj=sinu +lon_0=0 +R=6371007.181 +units=m +no_defs",
        ),
        (
            ESRI,
            "+proj=aea +lat_1=50 +lat_2=70 +lat_0=40 +lon_0=-96 +datum=NAD83",
        ),
    ] {
        assert!(of(text).is_same(&of(words)), "{text}");
        assert!(Crs::Wkt(text.to_owned()).is_same(&Crs::parse(words).unwrap()));
    }
    assert!(!of(ESRI).is_same(&of(FEET)));
}

#[test]
fn well_known_ones_are_their_codes() {
    for (text, code) in [
        (
            "+proj=stere +lat_0=-90 +lat_ts=-71 +lon_0=0 +datum=WGS84",
            3031,
        ),
        (
            "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +datum=WGS84",
            3413,
        ),
        ("+proj=utm +zone=56 +south +datum=WGS84", 32756),
        ("+proj=utm +zone=17 +datum=NAD83", 26917),
        ("+proj=longlat +datum=WGS84 +no_defs", 4326),
        (
            "+proj=merc +a=6378137 +b=6378137 +lat_ts=0 +lon_0=0 +x_0=0 +y_0=0 +k=1 +units=m +nadgrids=@null +wktext +no_defs",
            3857,
        ),
        ("epsg:32755", 32755),
        ("32755", 32755),
    ] {
        assert_eq!(Crs::parse(text).unwrap(), Crs::Epsg(code), "{text}");
    }
    // A datum's name on another ellipsoid is another datum.
    let sphere = r#"GEOGCS["a",DATUM["WGS_1984",SPHEROID["s",6371000,0]],PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]]"#;
    assert_eq!(Crs::of_wkt(sphere), Crs::Wkt(sphere.to_owned()));
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    for (text, said) in [
        ("nonsense", "`nonsense` is not a CRS"),
        ("ESRI:54009", "only EPSG codes are known"),
        ("+proj=krovak +ellps=bessel", "the projection krovak"),
        ("+proj=utm +zone=61", "a zone of 1 to 60"),
        ("+proj=tmerc +nadgrids=a.gsb", "grid shift files"),
        (
            "+proj=tmerc +lon_0=x",
            "`x` in a PROJ string is not a number",
        ),
        ("+proj=tmerc +alpha=3", "the word alpha"),
        (r#"PROJCS["a","#, "is not well-known text"),
        (r#"LOCAL_CS["a"]"#, "the kind LOCAL_CS"),
    ] {
        let err = Crs::parse(text).unwrap_err();
        assert!(err.message().contains(said), "{text}: {err}");
    }
    let deep = "PROJCS[".repeat(100_000);
    assert!(Parts::parse(&deep).is_err());
    // A datum whose shift nobody states is no place.
    let old = Crs::parse("+proj=utm +zone=33 +ellps=intl").unwrap();
    assert!(
        project(&old, [15.0, 50.0]).is_some(),
        "an unnamed datum is taken as WGS 84, as PROJ does"
    );
    let named = r#"GEOGCS["x",DATUM["Some_Old_Survey",SPHEROID["intl",6378388,297]],PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]]"#;
    let err =
        Transformer::new(&plane(Crs::Epsg(32633)), &plane(Crs::Wkt(named.to_owned()))).unwrap_err();
    assert!(err.message().contains("Some_Old_Survey"), "{err}");
}

#[test]
#[cfg(feature = "wkt")]
fn another_unit_keeps_the_place_and_loses_the_code() {
    // `gdalsrsinfo` of a file with ProjectedCSTypeGeoKey 2853 and ProjLinearUnitsGeoKey 9003, GDAL 3.6.2.
    let metres = Crs::Epsg(2853);
    let feet = metres
        .with_linear_unit("US survey foot", 12.0 / 39.37)
        .unwrap();
    assert_eq!(feet.epsg(), None);
    let text = feet.to_string();
    assert!(
        text.contains(r#"PARAMETER["false_easting",11482916.66666666"#),
        "{text}"
    );
    let a = project(&metres, [-77.5, 38.5]).unwrap();
    let b = project(&feet, [-77.5, 38.5]).unwrap();
    assert!((a[0] - b[0] * 12.0 / 39.37).abs() < 1e-6, "{a:?} {b:?}");
    assert_eq!(metres.with_linear_unit("metre", 1.0), Some(metres.clone()));
    assert_eq!(Crs::Epsg(2263).linear_unit(), Some(12.0 / 39.37));
    assert_eq!(Crs::Epsg(4326).with_linear_unit("metre", 1.0), None);
}

#[test]
fn geo_keys_name_what_geotiff_has_a_key_for() {
    let keys = Parts::parse("+proj=sinu +lon_0=7 +R=6371007.181")
        .unwrap()
        .geo_keys();
    let code = |id| {
        keys.directory
            .iter()
            .find(|key| key[0] == id)
            .map(|key| key[3])
    };
    assert_eq!(code(1024), Some(1));
    assert_eq!(code(3075), Some(24));
    assert_eq!(code(3076), Some(9001));
    let lon = code(3088).unwrap();
    assert_eq!(keys.doubles[usize::from(lon)], 7.0);
    assert!(keys.directory.is_sorted_by_key(|key| key[0]));
    let keys = Parts::parse("+proj=moll +datum=WGS84").unwrap().geo_keys();
    // As GDAL writes it, else GDAL reads no CRS.
    let ids: Vec<u16> = keys.directory.iter().map(|key| key[0]).collect();
    assert!(!ids.contains(&3072) && keys.directory.contains(&[1024, 0, 1, 32_767]));
    assert!(
        keys.texts.contains("ESRI PE String = PROJCS["),
        "{}",
        keys.texts
    );
}

#[test]
fn a_word_that_moves_longitudes_is_refused_by_name() {
    for usual in [
        "",
        " +lon_0=0",
        " +lat_0=0 +no_defs +type=crs",
        " +axis=enu",
    ] {
        let text = format!("+proj=longlat +datum=WGS84{usual}");
        assert_eq!(Parts::parse(&text).unwrap().epsg(), Some(4326), "{text}");
    }
    for odd in [
        "lon_0=90",
        "lon_wrap=180",
        "x_0=5",
        "k=2",
        "axis=neu",
        "geoc=",
    ] {
        let text = format!("+proj=longlat +datum=WGS84 +{odd}");
        let err = Parts::parse(&text).unwrap_err();
        assert!(err.message().contains(odd), "{err}");
    }
    let feet = Parts::parse("+proj=longlat +datum=WGS84 +units=ft").unwrap_err();
    assert!(feet.message().contains("unit of length"), "{feet}");
}

#[test]
fn a_projection_of_another_library_is_quoted_and_nothing_else() {
    let base = r#"GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433]]"#;
    let wkt = format!(
        r#"PROJCS["mine",{base},PROJECTION["Eckert_IV"],PARAMETER["central_meridian",0],UNIT["metre",1]]"#
    );
    assert!(Parts::parse(&wkt).is_err());
    let keys = super::geokeys::quoted(&wkt).unwrap();
    assert_eq!(keys.texts, format!("mine|ESRI PE String = {wkt}|"));
    assert!(Crs::Wkt(wkt.clone()).has_geo_keys());
    let long = wkt.replace("mine", &"m".repeat(2400));
    for other in [
        r#"LOCAL_CS["here"]"#,
        r#"PROJCRS["mine"]"#,
        wkt.replace("mine", "a|b").as_str(),
        long.as_str(),
    ] {
        assert!(!Crs::Wkt(other.to_owned()).has_geo_keys(), "{other}");
    }
}
