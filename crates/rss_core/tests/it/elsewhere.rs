//! Items that lie elsewhere: their files are not asked for, and harm nobody.

use ndarray::ArrayView3;
use rss_core::{
    Bbox, Collection, Crs, DEA, ErrorKind, ImageQueryBuilder, Intersects, QueryResult, Raster,
    Session, Source, Trust,
    apply::{
        ApplyOptions, Grid, ImageCube, ImageCubeOptions,
        reduce::Reducer,
        sample::{GeoJsonOptions, Points, SampleOptions, Statistics, Zones},
        time::Grouping,
    },
    date,
};
use rss_testbed::{Scenes, Service, Testbed};
use serde_json::{Value, json};

/// 375 km from the scenes.
const FAR: [f64; 4] = [154.89, -30.07, 154.91, -30.05];

struct Stage {
    bed: Testbed,
    session: Session,
    /// Items of two dates.
    items: Vec<Value>,
    grid: rss_core::GeoBox,
}

impl Stage {
    fn new() -> Self {
        let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
        let session = Session::builder()
            .s3_endpoint(&bed.s3_endpoint())
            .cpu_threads(2)
            .retries(0)
            .build()
            .unwrap();
        let dea = Source::api(&bed.stac_url()).unwrap().like(&DEA);
        let found = ImageQueryBuilder::new(dea, Collection::Sentinel2, Intersects::scene("56jns"))
            .session(session.clone())
            .canonical_bands(["red"])
            .start_date(date(2021, 1, 1))
            .end_date(date(2021, 2, 1))
            .build()
            .unwrap()
            .search()
            .unwrap();
        let items = found.items().items.iter().take(2);
        let items: Vec<Value> = items
            .map(|item| serde_json::to_value(item).unwrap())
            .collect();
        assert_eq!(items.len(), 2);
        let options = ImageCubeOptions::new();
        let grid = session.cube(&found, &options).unwrap().grid().clone();
        bed.clear_log();
        Self {
            bed,
            session,
            items,
            grid,
        }
    }

    /// Moves the second item, by what it says: its bbox, and the grids of its files or none. Its files may be gone.
    fn moved(&mut self, bbox: [f64; 4], stated: Option<[f64; 6]>, are_gone: bool) {
        let item = &mut self.items[1];
        item["bbox"] = json!(bbox);
        item["geometry"] = Value::Null;
        set(&mut item["properties"], stated);
        for asset in item["assets"].as_object_mut().unwrap().values_mut() {
            set(asset, stated);
            if are_gone {
                let href = asset["href"].as_str().unwrap();
                asset["href"] = json!(href.replace(".tif", "-gone.tif"));
            }
        }
    }

    fn found(&self) -> QueryResult {
        let all = json!({"type": "FeatureCollection", "features": self.items});
        let found = QueryResult::from_json(&self.session, all.to_string().as_bytes(), Trust::User);
        found.unwrap().with_bands(["nbart_red"])
    }

    fn cube(&self) -> rss_core::Result<ImageCube> {
        let options = ImageCubeOptions::new()
            .with_grid(Grid::Of(self.grid.clone()))
            .with_grouping(Grouping::Item);
        self.session.cube(&self.found(), &options)
    }

    fn count(&self) -> rss_core::Result<(Raster, usize)> {
        let made = self.cube()?.reduce(Reducer::Count, ApplyOptions::new());
        let (raster, report) = self.session.compute(made)?;
        Ok((raster, report.missing_inputs.len()))
    }

    fn gone(&self) -> usize {
        let asked = self.bed.requests(Service::S3);
        asked
            .iter()
            .filter(|one| one.path.contains("-gone"))
            .count()
    }
}

fn set(of: &mut Value, stated: Option<[f64; 6]>) {
    let of = of.as_object_mut().unwrap();
    of.retain(|key, _| !key.starts_with("proj:"));
    if let Some(transform) = stated {
        of.insert("proj:code".into(), json!("EPSG:32756"));
        of.insert("proj:shape".into(), json!([64, 64]));
        of.insert("proj:transform".into(), json!(transform));
    }
}

fn most(raster: &Raster) -> f32 {
    let view: ArrayView3<'_, f32> = raster.pixels.view().unwrap();
    view.iter().copied().fold(0.0, f32::max)
}

const THERE: [f64; 6] = [10.0, 0.0, 684_320.0, 0.0, -10.0, 6_672_320.0];

#[test]
fn what_touches_nothing_is_not_asked_for_and_harms_nobody() {
    let mut stage = Stage::new();
    stage.moved(FAR, Some(THERE), true);
    let (raster, missing) = stage.count().unwrap();
    assert_eq!((most(&raster), missing), (1.0, 0));
    let notes = stage.cube().unwrap().notes().to_vec();
    let id = stage.items[1]["id"].as_str().unwrap();
    let note =
        format!("1 of 2 images lie outside of the grid by the bboxes of their items (item {id})");
    assert!(notes.contains(&note), "{notes:?}");

    let here = stage.grid.bbox().unwrap();
    let [west, south, east, north] = here.edges();
    let middle = [(west + east) / 2.0, (south + north) / 2.0];
    let points = Points::new([middle], Crs::Epsg(4326)).unwrap();
    let options = SampleOptions::new();
    let (table, report) = stage
        .session
        .sample_points(&stage.found(), points, &options)
        .unwrap();
    assert_eq!((table.rows().count(), report.missing_inputs.len()), (1, 0));

    let [x, y] = middle;
    let ring = json!([[[x, y], [x + 0.001, y], [x + 0.001, y + 0.001], [x, y]]]);
    let zone = json!({"type": "Polygon", "coordinates": ring});
    let zones = Zones::from_geojson(&zone.to_string(), &GeoJsonOptions::new()).unwrap();
    let (table, report) = stage
        .session
        .sample_zones(&stage.found(), zones, &Statistics::default(), &options)
        .unwrap();
    assert!(table.rows().count() > 0);
    assert_eq!(report.missing_inputs.len(), 0);
    assert_eq!(stage.gone(), 0);
}

#[test]
fn a_missing_file_is_an_error_where_anything_says_that_it_lies_here() {
    let mut stage = Stage::new();
    let here: Bbox = stage.grid.bbox().unwrap();
    stage.moved(here.edges(), Some(THERE), true);
    assert_eq!(stage.count().unwrap_err().kind(), ErrorKind::NotFound);

    let mut stage = Stage::new();
    let transform = stage.grid.transform.unwrap().0;
    let [x, a, b, y, c, d] = transform;
    stage.moved(FAR, Some([a, b, x, c, d, y]), true);
    assert_eq!(stage.count().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_wrong_bbox_alone_loses_no_pixel_and_a_missing_file_behind_it_is_none() {
    let mut stage = Stage::new();
    stage.moved(FAR, None, false);
    let (raster, missing) = stage.count().unwrap();
    assert_eq!((most(&raster), missing), (2.0, 0));

    let mut stage = Stage::new();
    stage.moved(FAR, None, true);
    let (raster, missing) = stage.count().unwrap();
    assert_eq!((most(&raster), missing), (1.0, 0));
}
